"""Densities by observation: they sum to the density of their address, whatever happened to the particles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import numpyro.distributions.transforms as transforms
import pytest

import steelyard as sy
from tests.running import KEY

DATA = jnp.array([1.3, -0.4, 2.2, 0.1])


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    with s.when(z > 0):
        s.observe("y", dist.Gamma(2.0, jnp.array([1.0, 2.0, 3.0])), jnp.array([0.7, 0.1, 0.2]) + 0 * z, scale=2.5)
    s.observe("one", dist.Normal(z, 2.0), 0.7)
    s.factor("f", -0.3 * z)
    return x


def plain(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    return x


def guide(s: sy.State, x: Any) -> Any:
    s.sample("z", dist.Normal(0.4, 1.1))
    return x


def kernel(s: sy.State, x: Any) -> Any:
    s.sample("z", dist.Normal(0.7, 0.9))
    return x


def again(s: sy.State, x: Any) -> Any:
    """Observes the same address again: what was there before is its previous version."""
    v = s.sample("v", dist.Normal(0.2, 1.0))
    s.observe("x", dist.Normal(v, 0.8), x[:3])
    return x


def sometimes(s: sy.State, x: Any) -> Any:
    """The same, in some particles only."""
    v = s.sample("v", dist.Normal(0.2, 1.0))
    if v > 0:
        s.observe("x", dist.Normal(v, 0.8), x)
    return x


def annealed(q: Any, beta: Any) -> Any:
    hot = sy.temper(plain, beta)
    return sy.propose(sy.extend(hot, sy.prev(kernel)), sy.move(kernel, sy.resample(q)))


PROGRAMS = {
    "primitive": model,
    "temper": sy.temper(model, 0.3),
    "power zero": sy.temper(model, 0.0),
    "resample": sy.resample(sy.propose(model, guide)),
    "rename": sy.rename(sy.resample(model), {"x": "w", "z": "u"}),
    "prev": sy.prev(model),
    "extend": sy.extend(model, sy.rename(guide, {"z": "v"})),
    "compose": sy.compose(sy.rename(model, {"z": "v", "x": "w", "y": "t", "one": "o", "f": "g"}), sy.resample(model)),
    "move": sy.move(again, sy.resample(plain)),
    "move twice": sy.move(again, sy.move(again, plain)),
    "metropolis": sy.metropolis(kernel, sy.resample(plain), steps=2),
    "transport": sy.transport(transforms.AffineTransform(0.3, 1.7), plain),
    "detach": sy.detach(sy.resample(model)),
    "scan": sy.scan(annealed, sy.propose(sy.temper(plain, 0.1), guide), jnp.array([0.3, 0.6, 1.0])),
}


def check(out: sy.Evaluation) -> None:
    observed = {a for a in out.log_density if a not in out.trace and sy.language.addresses.variable(a)[0] not in "fg"}
    assert set(out.pointwise) == observed
    for a in observed:
        terms = np.asarray(out.pointwise[a])
        assert terms.shape[0] == out.particles
        total = terms.reshape(len(terms), -1).sum(axis=1)
        expected = np.where(out.log_density.present(a), out.log_density[a], 0.0)
        np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-5, err_msg=a)
        np.testing.assert_array_equal(out.pointwise.present(a), out.log_density.present(a))


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_sum_to_the_density(name: str) -> None:
    def run(key: Any, pointwise: bool) -> Any:
        return sy.evaluate(PROGRAMS[name], key, DATA, particles=7, pointwise=pointwise)

    asked = jax.jit(lambda key: run(key, True))(KEY)
    check(asked)
    assert not run(KEY, False).pointwise


@pytest.mark.parametrize("name", ["compose", "move twice", "scan", "sometimes"])
def test_in_the_universal_engine(name: str) -> None:
    q = sy.move(sometimes, sy.resample(plain)) if name == "sometimes" else PROGRAMS[name]
    out = sy.evaluate(q, KEY, DATA, particles=5, pointwise=True, engine="universal")
    check(out)
    if name == "sometimes":
        assert 0 < np.sum(out.pointwise.present(sy.previous("x"))) < 5


def test_each_term_by_hand() -> None:
    out = sy.evaluate(sy.temper(model, 0.3), KEY, DATA, particles=6, pointwise=True, chunk=4)
    z = np.asarray(out.trace["z"], float)
    expected = 0.3 * (-0.5 * ((np.asarray(DATA) - z[:, None]) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi)))
    np.testing.assert_allclose(out.pointwise["x"], expected, rtol=1e-4)
    rate, y = np.array([1.0, 2.0, 3.0]), np.array([0.7, 0.1, 0.2])
    gamma = 0.3 * 2.5 * (2 * np.log(rate) + np.log(y) - rate * y)
    np.testing.assert_allclose(out.pointwise["y"], np.where(z[:, None] > 0, gamma, 0.0), rtol=1e-4)
    assert out.pointwise["one"].shape == (6,)
    few = out.resample(jax.random.key(1), 3)
    np.testing.assert_array_equal(few.pointwise["x"], np.asarray(out.pointwise["x"])[np.asarray(few.ancestors)])


def test_events_and_values_outside_of_the_support() -> None:
    def p(s: sy.State) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("rows", dist.Normal(jnp.zeros(2), 1.0).to_event(1), jnp.ones((3, 2)))
        s.observe("out", dist.Uniform(0.0, 1.0), jnp.array([0.5, 2.0]))

    def q(s: sy.State) -> None:
        s.observe("out", dist.Uniform(0.0, 1.0), jnp.array([0.5, 2.0]))

    with jax.numpy_rank_promotion("allow"):
        out = jax.jit(lambda key: sy.evaluate(p, key, particles=2, pointwise=True))(KEY)
        hot = sy.evaluate(sy.temper(q, 0.0), KEY, particles=2, pointwise=True)
    np.testing.assert_allclose(out.pointwise["rows"], np.full((2, 3), -1.0 - np.log(2 * np.pi)), rtol=1e-5)
    np.testing.assert_array_equal(out.pointwise["out"], [[0.0, -np.inf]] * 2)
    np.testing.assert_array_equal(hot.pointwise["out"], np.zeros((2, 2)))


def test_programs_that_branch_have_terms_where_they_observe() -> None:
    def p(s: sy.State) -> None:
        if s.sample("b", dist.Bernoulli(0.5)) == 1:
            s.observe("x", dist.Normal(0.0, 1.0), jnp.array([1.0, 2.0]))
        s.observe("n", dist.Normal(0.0, 1.0), jnp.zeros(int(s.sample("k", dist.Bernoulli(0.5))) + 1))

    out = sy.evaluate(p, KEY, particles=8, pointwise=True, engine="universal")
    b, k = np.asarray(out.trace["b"]) == 1, np.asarray(out.trace["k"])
    assert 0 < b.sum() < 8 and 0 < k.sum() < 8
    expected = -0.5 * np.array([1.0, 4.0]) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(out.pointwise["x"], np.where(b[:, None], expected, 0.0), rtol=1e-5)
    assert [len(terms) for terms in out.pointwise["n"]] == [*(k + 1)]


def test_who_does_not_ask_pays_nothing() -> None:
    def equations(**options: Any) -> str:
        q = PROGRAMS["scan"]
        return str(jax.make_jaxpr(lambda key: sy.evaluate(q, key, DATA, particles=3, **options))(KEY))

    assert equations() == equations(pointwise=False) != equations(pointwise=True)


def test_gradients_and_batches() -> None:
    def terms(c: Any) -> Any:
        return sy.evaluate(plain, KEY, c * DATA, particles=2, pointwise=True)

    out = jax.vmap(terms)(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(out.pointwise["x"].sum(axis=-1), out.log_density["x"], rtol=1e-5)
    ours = jax.grad(lambda c: terms(c).pointwise["x"].sum())(1.5)
    theirs = jax.grad(lambda c: terms(c).log_density["x"].sum())(1.5)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_where_the_density_is_not_known() -> None:
    def step(q: Any, y: Any) -> Any:
        return sy.move(plain, sy.resample(q))

    with pytest.raises(sy.GrammarError, match=r"pointwise=True.*keeps only the newest"):
        sy.evaluate(sy.scan(step, plain, jnp.arange(2.0), keep=["z"]), KEY, DATA, particles=2, pointwise=True)
