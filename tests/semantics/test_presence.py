"""Variables that exist in some particles only, against weights worked out by hand."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import steelyard as sy
from steelyard.compiler.randomness import particle_key, scattered
from tests.running import KEY, run, universal

X = 0.7
norm, bern = scipy.stats.norm.logpdf, scipy.stats.bernoulli.logpmf


def model(s: sy.State) -> jax.Array:
    """An outlier (with its own shift) or not; its `shift` and the observation `y` exist where `outlier` is 1."""
    outlier = s.sample("outlier", dist.Bernoulli(0.3))
    with s.when(outlier == 1):
        shift = s.sample("shift", dist.Normal(1.0, 2.0))
        s.observe("y", dist.Normal(shift, 1.5), -0.4)
    s.observe("x", dist.Normal(jnp.where(outlier == 1, shift, 0.0), 0.5), X)
    return shift


def guide(s: sy.State) -> None:
    """Proposes a shift where `coin` is 1, which has nothing to do with `outlier`: missing here, superfluous there."""
    s.sample("outlier", dist.Bernoulli(0.6))
    coin = s.sample("coin", dist.Bernoulli(0.5))
    with s.when(coin == 1):
        s.sample("shift", dist.Normal(0.5, 1.0))


def by_hand(out: sy.Evaluation, proposed: np.ndarray) -> np.ndarray:
    """Return log w2 w1 / u1 for each particle of propose(model, guide)."""
    outlier, shift = np.asarray(out.trace["outlier"]), np.asarray(out.trace["shift"], float)
    with np.errstate(invalid="ignore"):
        w = bern(outlier, 0.3) + norm(X, np.where(outlier, shift, 0.0), 0.5) - bern(outlier, 0.6)
        w = w + np.where(outlier, norm(-0.4, shift, 1.5), 0.0)
        return w + np.where(outlier & proposed, norm(shift, 1.0, 2.0) - norm(shift, 0.5, 1.0), 0.0)


def test_missing_and_superfluous_variables_are_weighted_per_particle() -> None:
    proposal = run(guide, particles=64)
    out = run(sy.propose(model, guide), particles=64)
    coin, outlier = np.asarray(proposal.trace["coin"]) == 1, np.asarray(out.trace["outlier"]) == 1
    assert all((coin == a)[outlier == b].any() for a in (True, False) for b in (True, False))
    np.testing.assert_allclose(out.log_weight, by_hand(out, coin), rtol=1e-4, atol=1e-5)
    assert (np.asarray(out.trace.present("shift")) == outlier).all()
    assert (np.asarray(out.log_density.present("y")) == outlier).all()
    assert out.trace.present("outlier") is True
    reused = coin & outlier
    np.testing.assert_allclose(out.trace["shift"][reused], proposal.trace["shift"][reused])
    # Where the shift was missing it comes from the prior, and is no value of the proposal.
    missing = outlier & ~coin
    assert not np.isin(np.asarray(out.trace["shift"])[missing], np.asarray(proposal.trace["shift"])).any()


def test_both_engines_agree_on_every_particle() -> None:
    """Absent variables must not shift the random numbers of those that come after them."""
    q = sy.propose(model, guide)
    vectorized, one_by_one = run(q, particles=24), universal(q, particles=24)
    present = np.asarray(vectorized.trace.present("shift"))
    assert 0 < present.sum() < 24
    assert (present == one_by_one.trace.present("shift")).all()
    assert (np.asarray(vectorized.trace["outlier"]) == one_by_one.trace["outlier"]).all()
    shift = np.array([0.0 if x is None else float(x) for x in one_by_one.trace["shift"]])
    np.testing.assert_allclose(np.where(present, vectorized.trace["shift"], 0.0), shift, rtol=1e-5)
    np.testing.assert_allclose(vectorized.log_weight, one_by_one.log_weight, rtol=1e-4, atol=1e-5)


def test_variables_after_an_absent_one_are_the_same_in_both_engines() -> None:
    def later(s: sy.State) -> jax.Array:
        flag = s.sample("flag", dist.Bernoulli(0.5))
        with s.when(flag == 1):
            s.sample("a", dist.Normal(0.0, 1.0))
        return s.sample("b", dist.Normal(0.0, 1.0))

    np.testing.assert_allclose(run(later, particles=8).value, universal(later, particles=8).value, rtol=1e-5)


def test_the_evidence_of_a_model_with_optional_variables() -> None:
    # p(x, y) = 0.7 N(x; 0, 0.5) + 0.3 int N(a; 1, 2) N(y; a, 1.5) N(x; a, 0.5) da, the integral being Gaussian.
    mean, covariance = [1.0, 1.0], [[4.0 + 2.25, 4.0], [4.0, 4.0 + 0.25]]
    outlier = scipy.stats.multivariate_normal.logpdf([-0.4, X], mean, covariance)
    exact = np.logaddexp(np.log(0.7) + norm(X, 0.0, 0.5), np.log(0.3) + outlier)
    for q in (model, sy.resample(sy.propose(model, guide))):
        sy.testing.check_evidence(q, exact, key=KEY, particles=1000, runs=100)


def test_nested_blocks_exist_where_all_their_flags_hold() -> None:
    def nested(s: sy.State) -> None:
        a = s.sample("a", dist.Bernoulli(0.5))
        b = s.sample("b", dist.Bernoulli(0.5))
        with s.when(a == 1):
            s.factor("outer", 1.0)
            with s.when(b == 1):
                s.factor("inner", 10.0)
            s.factor("outer again", 100.0)
        with s.when(True):
            s.factor("always", 1000.0)
        with s.when(False):
            s.factor("never", 10_000.0)
            with s.when(b == 1):
                s.sample("never either", dist.Normal(0.0, 1.0))

    for out in (run(nested, particles=32), universal(nested, particles=32)):
        a, b = np.asarray(out.trace["a"], float), np.asarray(out.trace["b"], float)
        assert len({*zip(a, b, strict=True)}) == 4
        np.testing.assert_allclose(np.asarray(out.log_weight), 1000 + 101 * a + 10 * a * b)
        assert not np.any(out.log_density.present("never"))
        assert not np.any(out.trace.present("never either"))
        assert out.log_density.present("always") is True


def test_a_block_that_fails_leaves_the_state_as_it_was() -> None:
    def recovers(s: sy.State) -> None:
        with pytest.raises(RuntimeError), s.when(s.sample("a", dist.Bernoulli(0.5)) == 1):
            raise RuntimeError
        s.factor("f", 2.0)

    assert run(recovers, particles=4).log_weight.tolist() == [2.0] * 4


def test_resampling_takes_presence_along() -> None:
    out = run(sy.resample(model), particles=32)
    assert (np.asarray(out.trace.present("shift")) == (np.asarray(out.trace["outlier"]) == 1)).all()


def test_log_density_of_a_trace_with_optional_variables() -> None:
    absent = bern(0, 0.3) + norm(X, 0.0, 0.5)
    there = bern(1, 0.3) + norm(0.2, 1.0, 2.0) + norm(-0.4, 0.2, 1.5) + norm(X, 0.2, 0.5)
    np.testing.assert_allclose(sy.log_density(model, {"outlier": 0}), absent, rtol=1e-5)
    np.testing.assert_allclose(sy.log_density(model, {"outlier": 1, "shift": 0.2}), there, rtol=1e-5)
    # Under jit the trace has a value whether the particle does or not: a superfluous one has density zero.
    compiled = jax.jit(lambda outlier: sy.log_density(model, {"outlier": outlier, "shift": 0.2}))
    np.testing.assert_allclose(compiled(1), there, rtol=1e-5)
    assert compiled(0) == -np.inf


def test_gradients_are_not_poisoned_by_absent_variables() -> None:
    """What is proposed where the target has no such variable may be anything, even outside of its support."""

    def target(s: sy.State, scale: jax.Array) -> None:
        flag = s.sample("flag", dist.Bernoulli(0.5))
        with s.when(flag == 1):
            z = s.sample("z", dist.LogNormal(0.0, scale))
            s.observe("x", dist.LogNormal(jnp.log(z), scale), 1.0)

    def signed(s: sy.State, scale: jax.Array) -> None:
        flag = s.sample("flag", dist.Bernoulli(0.5))
        s.sample("z", dist.Normal(jnp.where(flag == 1, 3.0, -3.0), 0.5 * scale))

    def log_z(scale: jax.Array) -> jax.Array:
        return sy.evaluate(sy.propose(target, signed), jax.random.key(1), scale, particles=16).log_z

    with jax.enable_x64(True):
        function = jax.jit(jax.value_and_grad(log_z))
        expected = (function(1.3 + 1e-6)[0] - function(1.3 - 1e-6)[0]) / 2e-6
        np.testing.assert_allclose(function(1.3)[1], expected, rtol=1e-5)


class Plain:
    """A distribution that compiles to arithmetic alone."""

    def __init__(self, mean: Any) -> None:
        self.mean = mean

    def sample(self, key: jax.Array) -> jax.Array:
        return self.mean + jax.random.uniform(key)

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -((value - self.mean) ** 2)


def plain(s: sy.State, x: jax.Array) -> None:
    z = s.sample("z", Plain(0.5))
    s.observe("x", Plain(z), x)


def by_jax(key: jax.Array, x: jax.Array) -> jax.Array:
    """What `plain` computes, written by hand."""
    key = scattered(key)

    def one(particle: jax.Array) -> jax.Array:
        z = Plain(0.5).sample(particle_key(key, particle, level=1, site=1))
        return Plain(z).log_prob(x)

    return jax.vmap(one)(jnp.arange(9))


def instructions(function: Any) -> list[str]:
    """Return the names of the operations that a function compiles to, before XLA optimises them."""
    text = jax.jit(function).lower(KEY, 1.0).as_text()
    return sorted(re.findall(r"= \"?((?:stablehlo|chlo|func)\.\w+)", text))


def test_presence_costs_nothing_where_it_is_not_used() -> None:
    ours = instructions(lambda key, x: sy.evaluate(plain, key, x, particles=9).log_weight)
    theirs = instructions(by_jax)
    assert "stablehlo.select" not in ours
    # The sum of densities starts from zeros, and that is all.
    assert len(ours) - len(theirs) <= 4
    np.testing.assert_allclose(by_jax(KEY, 1.0), run(plain, 1.0, particles=9).log_weight, rtol=1e-6)


def test_the_count_of_instructions_sees_presence() -> None:
    def masked(s: sy.State, x: jax.Array) -> None:
        z = s.sample("z", Plain(0.5))
        with s.when(z > 0.7):
            s.observe("x", Plain(z), x)

    assert "stablehlo.select" in instructions(lambda key, x: sy.evaluate(masked, key, x, particles=9).log_weight)
