"""A constant that all log weights share changes nothing else, whatever its size: a property of whole evaluations."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import steelyard as sy

OFFSETS = [0.0, 1e5, -1e6, 1e7, -3.3e7]
METHODS = ["systematic", "stratified", "multinomial", "residual"]


def step(offset: Any, slope: Any) -> Any:
    """Log weights are multiples of 4, which single precision holds at every offset; some are zero."""

    def f(s: sy.State) -> Any:
        k = s.sample("k", dist.Categorical(jnp.array([0.4, 0.3, 0.2, 0.1])))
        z = s.sample("z", dist.Normal(jnp.float32(k), 1.0))
        s.factor("data", jnp.where(k == 3, -jnp.inf, offset - 4.0 * k))
        s.factor("slope", slope * z)
        return z

    return f


@cache
def compiled(method: Any, particles: int) -> Any:
    def numbers(slope: Any, offset: Any, key: Any) -> Any:
        one = sy.evaluate(step(offset, slope), key, particles=particles)
        two = sy.evaluate(sy.resample(step(offset, slope), method=method), key, particles=particles)
        again = one.resample(key, 2 * particles, method=method)
        same = {
            "normalised": one.normalized_weights,
            "ess": one.ess,
            "expect": one.expect(lambda t: t["z"]),
            "ancestors": two.ancestors,
            "drawn": again.ancestors,
            "increments": [level.log_z_increment for level in two.levels],
            "shares": [level.max_weight for level in two.levels],
        }
        return same, {"one": one.log_z, "again": again.log_z}

    return jax.jit(numbers), jax.jit(jax.jacfwd(lambda *args: numbers(*args)[0]["expect"]))


@pytest.mark.parametrize("method", METHODS)
def test_an_offset_changes_nothing_but_log_z(method: str) -> None:
    @settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(st.sampled_from(OFFSETS), st.sampled_from([5, 300]), st.integers(0, 99))
    def law(offset: float, particles: int, seed: int) -> None:
        numbers, gradient = compiled(method, particles)
        key = jax.random.key(seed)
        (same, moved), (expected, still) = numbers(0.0, offset, key), numbers(0.0, 0.0, key)
        if not np.isfinite(still["one"]):
            return
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), same, expected)
        for name, log_z in moved.items():
            np.testing.assert_allclose(log_z, still[name] + np.float32(offset), rtol=2e-7, atol=1e-5)
        slope, flat = (gradient(0.0, x, key) for x in (offset, 0.0))
        np.testing.assert_allclose(slope, flat, rtol=1e-4, atol=1e-5)

    law()


def test_ten_million_observations() -> None:
    """The posterior is within a thousandth of 2, and so is its expectation, though log weights are near -1e7."""

    def model(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(2.0, 3e-4))
        # As the sum over the data, sufficient statistics: the mean is 2, the variance 1.
        s.factor("data", -0.5 * 1e7 * ((z - 2.0) ** 2 + 1.0 + np.log(2 * np.pi)))

    out = sy.evaluate(model, jax.random.key(0), particles=20)
    assert abs(out.expect(lambda t: t["z"]) - 2.0) < 1e-3
    assert 1.0 <= out.ess <= 20.0 + 1e-4
    np.testing.assert_allclose(out.normalized_weights.sum(), 1.0, rtol=1e-6)


def second_increment(offset: float) -> float:
    """The kernel moves what the data does not depend on: the incremental weight has no large term."""

    def target(s: sy.State) -> Any:
        z, a = s.sample("z", dist.Normal(0.0, 1.0)), s.sample("a", dist.Normal(0.0, 1.0))
        s.factor("much", offset + 4.0 * jnp.sign(z))
        s.factor("little", 4.0 * jnp.sign(a))
        return z

    def guide(s: sy.State) -> None:
        target(s)

    def kernel(s: sy.State, z: Any) -> Any:
        return s.sample("a", dist.Normal(0.2, 1.1))

    q = sy.propose(sy.extend(target, sy.prev(kernel)), sy.move(kernel, sy.resample(sy.propose(target, guide))))
    return float(sy.evaluate(q, jax.random.key(0), particles=9).levels[-1].log_z_increment)


@pytest.mark.parametrize("offset", OFFSETS[1:])
def test_the_increment_of_log_z_next_to_a_large_weight(offset: float) -> None:
    assert abs(second_increment(0.0)) > 0.01
    np.testing.assert_allclose(second_increment(offset), second_increment(0.0), rtol=1e-5)


@pytest.mark.parametrize("offset", OFFSETS)
def test_large_densities_that_proposal_and_target_share_leave_the_small_ones(offset: float) -> None:
    def target(s: sy.State) -> None:
        s.factor("data", offset)
        s.factor("tilt", 0.375)

    def proposal(s: sy.State) -> None:
        s.factor("data", offset)

    level = sy.evaluate(sy.propose(target, proposal), jax.random.key(0), particles=2).levels[0]
    np.testing.assert_allclose(level.log_z_increment, 0.375, rtol=1e-6)
