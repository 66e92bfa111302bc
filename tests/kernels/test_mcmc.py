"""Markov kernels of BlackJAX and of one's own leave the density as it is, in any coordinates."""

from collections.abc import Callable
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.distributions import coordinates
from tests.laws.markov import At, HeatBath

SIZE = 13  # numbers in the unconstrained coordinates of `prior`
CORRELATED = dist.MultivariateNormal(jnp.array([1.0, -2.0]), jnp.array([[1.0, 1.2], [1.2, 4.0]]))


def prior(s: sy.State) -> Any:
    """Asymmetric, correlated and constrained variables, the support of one of which depends on another."""
    gamma = s.sample("gamma", dist.Gamma(2.3, 1.7))
    s.sample("below", dist.Uniform(-1.0, gamma))
    s.sample("shares", dist.Dirichlet(jnp.array([0.9, 2.0, 3.1])))
    s.sample("correlation", dist.LKJ(3, 1.5))
    s.sample("pair", CORRELATED)
    s.sample("angles", dist.Beta(jnp.array([0.7, 3.0]), 1.4).to_event(1))
    s.sample("count", dist.Poisson(gamma))
    s.sample(
        "steps", dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([2]), dist.transforms.OrderedTransform())
    )
    return gamma


def slice_kernel(log_density: Any) -> Any:
    """Elliptical slice sampling, whose prior has a density of its own that is divided out."""
    broad = dist.Normal(0.0, 2.0)

    def likelihood(position: Any) -> Any:
        return log_density(position) - sum(jnp.sum(broad.log_prob(x)) for x in jax.tree.leaves(position))

    return blackjax.elliptical_slice(likelihood, mean=jnp.zeros(SIZE), cov=4 * jnp.eye(SIZE))


def own_walk(log_density: Any) -> Any:
    """A random walk that is written by hand: any object with a position is a state."""

    def step(key: Any, state: At) -> tuple[At, None]:
        k1, k2 = jax.random.split(key)
        leaves, structure = jax.tree.flatten(state.position)
        keys = jax.random.split(k1, len(leaves))
        moved = [x + 0.4 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
        proposed = jax.tree.unflatten(structure, moved)
        accept = jnp.log(jax.random.uniform(k2)) < log_density(proposed) - log_density(state.position)
        return At(jax.tree.map(lambda new, old: jnp.where(accept, new, old), proposed, state.position)), None

    return At, step


ONES = jnp.ones(SIZE)
KERNELS: dict[str, Callable[..., Any]] = {
    "hmc": partial(blackjax.hmc, step_size=0.25, inverse_mass_matrix=ONES, num_integration_steps=4),
    "mala": partial(blackjax.mala, step_size=0.06),
    "nuts": partial(blackjax.nuts, step_size=0.3, inverse_mass_matrix=ONES, max_num_doublings=3),
    "rmh": partial(blackjax.normal_random_walk, sigma=0.2 * jnp.eye(SIZE)),
    "slice": slice_kernel,
    "own": own_walk,
}
MOMENTS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "mean of a gamma": (lambda t: t["gamma"], 2.3 / 1.7),
    "log of a gamma": (lambda t: jnp.log(t["gamma"]), float(jax.scipy.special.digamma(2.3) - jnp.log(1.7))),
    "between its bounds": (lambda t: (t["below"] + 1) / (t["gamma"] + 1), 0.5),
    "squared between its bounds": (lambda t: ((t["below"] + 1) / (t["gamma"] + 1)) ** 2, 1 / 3),
    "first share": (lambda t: t["shares"][0], 0.9 / 6),
    "product of shares": (lambda t: t["shares"][1] * t["shares"][2], 2.0 * 3.1 / (6 * 7)),
    "squared correlation": (lambda t: t["correlation"][0, 2] ** 2, 1 / (3 + 2 * (1.5 - 1) + 1)),
    "covariance": (lambda t: (t["pair"][0] - 1) * (t["pair"][1] + 2), 1.2),
    "beta": (lambda t: t["angles"][0], 0.7 / 2.1),
    "given the count": (lambda t: t["count"] * t["gamma"], 2.3 * 3.3 / 1.7**2),
    "smallest": (lambda t: t["steps"][0], 0.0),
}


def _z_scores(kernel: Any, key: int, particles: int = 20_000) -> dict[str, float]:
    q = sy.mcmc(kernel, prior, steps=3)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=particles))(jax.random.key(key))
    assert out.levels[-1].acceptance > 0.2
    assert out.levels[-1].jump > 0.01
    found = {name: jax.vmap(h)(dict(out.trace)) for name, (h, _) in MOMENTS.items()}
    return {name: float((x.mean() - MOMENTS[name][1]) / (x.std() / particles**0.5)) for name, x in found.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_moments_stay_what_they_were(name: str) -> None:
    for moment, z in _z_scores(KERNELS[name], 1).items():
        assert abs(z) < 4.5, moment


@pytest.mark.long
def test_a_missing_jacobian_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = coordinates._from_position
    monkeypatch.setattr(coordinates, "_from_position", lambda *args: right(*args)._replace(log_det=0.0))
    assert max(map(abs, _z_scores(KERNELS["own"], 1).values())) > 8


@pytest.mark.long
def test_a_kernel_that_is_not_invariant_shows() -> None:
    def model(s: sy.State) -> Any:
        k = s.sample("k", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        s.observe("x", dist.Bernoulli(0.1 + 0.4 * k), 1)

    sy.testing.assert_properly_weighted(sy.mcmc(HeatBath("k", 3), model, only=["k"]), particles=1)
    with pytest.raises(AssertionError, match="not properly weighted"):
        sy.testing.assert_properly_weighted(sy.mcmc(HeatBath("k", 3, tilted=True), model, only=["k"]), particles=1)


def model(s: sy.State, x: Any) -> Any:
    rate = s.sample("rate", dist.Gamma(2.0, 1.0))
    k = s.sample("k", dist.Categorical(jnp.array([0.3, 0.7])))
    s.observe("x", dist.Poisson(rate * (1 + k)), x)
    return {"rate": rate, "k": k}


def guide(s: sy.State, x: Any) -> None:
    s.sample("rate", dist.Gamma(3.0, 1.0))
    s.sample("k", dist.Categorical(jnp.array([0.5, 0.5])))


HMC = partial(blackjax.hmc, step_size=0.4, inverse_mass_matrix=jnp.ones(1), num_integration_steps=3)


def test_weights_stay_and_densities_are_those_at_the_new_place() -> None:
    q = sy.propose(model, guide)
    before, out = (sy.evaluate(f(q), jax.random.key(0), 4, particles=5) for f in (lambda q: q, partial(sy.mcmc, HMC)))
    np.testing.assert_array_equal(before.log_weight, out.log_weight)
    assert before.log_density.keys() == out.log_density.keys()
    assert (before.trace["rate"] != out.trace["rate"]).any()
    np.testing.assert_array_equal(before.trace["k"], out.trace["k"])
    np.testing.assert_array_equal(out.value["rate"], out.trace["rate"])
    for l in range(5):
        density = sy.log_density(model, {a: x[l] for a, x in out.trace.items()}, 4)
        np.testing.assert_allclose(sum(x[l] for x in out.log_density.values()), density, rtol=1e-6)


def test_engines_agree() -> None:
    q = sy.mcmc(HMC, sy.resample(sy.propose(model, guide)), steps=2)
    one, other = (sy.evaluate(q, jax.random.key(3), 4, particles=2, engine=e) for e in ("vectorized", "universal"))
    np.testing.assert_allclose(one.trace["rate"], other.trace["rate"], rtol=1e-5)
    np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-5)
    for name in ("acceptance", "jump"):
        np.testing.assert_allclose(getattr(one.levels[-1], name), getattr(other.levels[-1], name), rtol=1e-4)


def test_in_a_scan_it_is_the_written_out_program() -> None:
    q: Any = sy.propose(model, guide)
    rolled = sy.scan(lambda q, _: sy.mcmc(own_walk, sy.resample(q)), q, None, length=2)
    for _ in range(2):
        q = sy.mcmc(own_walk, sy.resample(q))
    one, other = (sy.evaluate(p, jax.random.key(3), 4, particles=6) for p in (rolled, q))
    np.testing.assert_allclose(one.trace["rate"], other.trace["rate"], rtol=1e-5)
    np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-5)
    assert one.levels[-1].acceptance.shape == (2,)


def test_under_jit_and_vmap() -> None:
    def run(key: Any) -> Any:
        return sy.evaluate(sy.mcmc(own_walk, model), key, 4, particles=4).trace["rate"]

    keys = jax.random.split(jax.random.key(0), 3)
    np.testing.assert_allclose(jax.jit(jax.vmap(run))(keys)[1], run(keys[1]), rtol=1e-5)


def test_chunks_change_nothing() -> None:
    q = sy.mcmc(own_walk, model)
    one, other = (sy.evaluate(q, jax.random.key(0), 4, particles=6, chunk=c).trace["rate"] for c in (None, 4))
    np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("kernel", [HMC, partial(blackjax.nuts, step_size=0.4, inverse_mass_matrix=jnp.ones(1))])
def test_values_are_detached_and_densities_learn(kernel: Any) -> None:
    def tilted(m: Any) -> Any:
        return lambda s: s.sample("z", dist.Normal(m, 1.0))

    def run(m: Any) -> Any:
        out = sy.evaluate(sy.mcmc(kernel, tilted(m)), jax.random.key(0), particles=3)
        return out.trace["z"], (out.trace["z"].sum(), out.value.sum(), out.log_density["z"].sum())

    (z, _), slopes = run(0.5), jax.jacobian(lambda m: run(m)[1])(0.5)
    np.testing.assert_allclose(slopes[:2], 0.0)
    np.testing.assert_allclose(slopes[2], (z - 0.5).sum(), rtol=1e-5)


def test_who_does_not_move_stays_to_the_last_bit() -> None:
    hopeless = partial(blackjax.hmc, step_size=1e4, inverse_mass_matrix=jnp.ones(1), num_integration_steps=3)
    before, out = (sy.evaluate(q, jax.random.key(0), 4, particles=50) for q in (model, sy.mcmc(hopeless, model)))
    np.testing.assert_array_equal(before.trace["rate"], out.trace["rate"])
    assert out.levels[-1].acceptance == 0
    assert out.levels[-1].jump == 0


def test_a_place_at_the_edge_is_not_left_for_nowhere() -> None:
    def bounded(s: sy.State) -> None:
        s.sample("u", dist.Uniform(0.0, 1.0))

    def edge(s: sy.State) -> None:
        # Tiny numbers, half of which are below the bound.
        s.sample("u", dist.Normal(0.0, 1e-30))

    q = sy.mcmc(HMC, sy.propose(bounded, edge))
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=20))(jax.random.key(0))
    assert bool(jnp.isfinite(out.trace["u"]).all())


def optional(s: sy.State) -> None:
    """A variable exists where another one is positive: the kernel may not change which ones there are."""
    z = s.sample("z", dist.Normal(0.3, 1.0))
    with s.when(z > 0):
        s.sample("extra", dist.Gamma(2.0 + z, 1.0))


def test_variables_that_come_and_go() -> None:
    walk = partial(blackjax.normal_random_walk, sigma=0.7 * jnp.eye(2))
    q = sy.mcmc(walk, optional, steps=4)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=40_000))(jax.random.key(2))
    before = jax.jit(lambda key: sy.evaluate(optional, key, particles=40_000))(jax.random.key(2))
    here = np.asarray(out.trace.present("extra"))
    np.testing.assert_array_equal(here, before.trace.present("extra"))
    np.testing.assert_array_equal(here, out.trace["z"] > 0)
    error = np.asarray(out.trace["extra"] - (2.0 + out.trace["z"]))[here]
    assert abs(error.mean()) < 4.5 * error.std() / here.sum() ** 0.5
    assert (np.asarray(out.trace["z"]) != np.asarray(before.trace["z"])).mean() > 0.5


def test_only_present_variables_have_a_position_in_the_universal_engine() -> None:
    out = sy.evaluate(sy.mcmc(own_walk, optional), jax.random.key(0), particles=6, engine="universal")
    before = sy.evaluate(optional, jax.random.key(0), particles=6, engine="universal")
    np.testing.assert_array_equal(out.trace.present("extra"), before.trace.present("extra"))
    assert (out.trace["z"] != before.trace["z"]).any()


def test_only_some_variables_move() -> None:
    def two(s: sy.State) -> None:
        s.sample("a", dist.Normal(0.0, 1.0))
        s.sample("b", dist.Normal(0.0, 1.0))

    before, out = (sy.evaluate(q, jax.random.key(0), particles=9) for q in (two, sy.mcmc(own_walk, two, only=["b"])))
    np.testing.assert_array_equal(before.trace["a"], out.trace["a"])
    assert (before.trace["b"] != out.trace["b"]).any()


def test_large_densities_that_stay_the_same_do_not_drown_the_others() -> None:
    def much(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", dist.Normal(z, 0.5), jnp.asarray(1.0))
        s.factor("rest", -3.3e7)

    q = sy.mcmc(HMC, sy.resample(much), steps=5)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=20_000))(jax.random.key(0))
    np.testing.assert_allclose([out.trace["z"].mean(), out.trace["z"].var()], [0.8, 0.2], atol=0.02)


def test_a_factor_that_only_some_places_have() -> None:
    def two_levels(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        with s.when(z > 0):
            s.factor("bonus", 1.5)

    q = sy.mcmc(own_walk, sy.resample(two_levels), steps=20)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=20_000))(jax.random.key(0))
    np.testing.assert_allclose((out.trace["z"] > 0).mean(), np.exp(1.5) / (1 + np.exp(1.5)), atol=0.01)


def test_no_steps() -> None:
    before, out = (sy.evaluate(q, jax.random.key(0), 4, particles=3) for q in (model, sy.mcmc(HMC, model, steps=0)))
    np.testing.assert_array_equal(before.trace["rate"], out.trace["rate"])


def test_double_precision_and_one_particle() -> None:
    with jax.enable_x64(True):
        out = sy.evaluate(sy.mcmc(own_walk, model), jax.random.key(0), 4, particles=1)
        assert out.trace["rate"].dtype == jnp.float64


def test_a_kernel_that_begins_at_random() -> None:
    kernel = partial(blackjax.dynamic_hmc, step_size=0.4, inverse_mass_matrix=jnp.ones(1))
    out = sy.evaluate(sy.mcmc(kernel, model), jax.random.key(0), 4, particles=50)
    assert out.levels[-1].acceptance > 0.5


def test_errors_name_the_remedy() -> None:
    def discrete(s: sy.State) -> None:
        s.sample("k", dist.Bernoulli(0.3))

    def directions(s: sy.State) -> None:
        s.sample("d", dist.ProjectedNormal(jnp.array([1.0, 0.0])))

    def filter_step(q: Any, _: Any) -> Any:
        return sy.move(lambda s, z: s.sample("z", dist.Normal(z, 1.0)), sy.resample(q))

    def first(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0))

    key = jax.random.key(0)
    with pytest.raises(sy.ArgumentError, match=r"only=\['rate'\]"):
        sy.mcmc(HMC, model, only="rate")
    with pytest.raises(sy.ArgumentError, match="steps"):
        sy.mcmc(HMC, model, steps=-1)
    with pytest.raises(sy.AddressError, match="no variable 'speed' to move"):
        sy.evaluate(sy.mcmc(HMC, model, only=["speed"]), key, 4, particles=2)
    with pytest.raises(sy.AddressError, match="metropolis"):
        sy.evaluate(sy.mcmc(HMC, discrete), key, particles=2)
    with pytest.raises(sy.ArgumentError, match="'d'.*ProjectedNormal.*only="):
        sy.evaluate(sy.mcmc(HMC, directions), key, particles=2)
    with pytest.raises(sy.GrammarError, match="keep"):
        kept = sy.scan(filter_step, first, None, length=3, keep=["z"])
        sy.evaluate(sy.mcmc(HMC, kept), key, particles=2)
    with pytest.raises(sy.LoopStructureError, match="propose"):
        q = sy.scan(lambda q, x: sy.propose(lambda s: first(s), sy.mcmc(HMC, q)), first, jnp.zeros(2))
        sy.evaluate(q, key, particles=2)
