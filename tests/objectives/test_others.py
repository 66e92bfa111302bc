"""What each particle sees of the others: right where one weight is all there is, and in memory that grows with them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special

import steelyard as sy
from steelyard.objectives.estimators import log_sum_of_others, sum_of_others

INF = np.inf
WEIGHTS = {
    "ordinary": [0.3, -1.0, 2.0, 0.0, -0.7],
    "one dominates": [-3.0, 200.0, -2.5, -4.0],
    "one dominates, at the end": [-3.0, -2.5, 1e6],
    "two are equal": [50.0, -1.0, 50.0],
    "some are zero": [-INF, 0.5, -INF, 1.5, -INF],
    "all but one are zero": [-INF, -INF, 0.5],
    "all are zero": [-INF, -INF],
    "one": [0.7],
}


def without_each(log_w: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.array(
            [scipy.special.logsumexp(np.delete(log_w, i)) if len(log_w) > 1 else -INF for i in range(len(log_w))]
        )


@pytest.mark.parametrize("name", list(WEIGHTS))
def test_the_sum_of_the_other_weights(name: str) -> None:
    """Not a difference to the sum of all, of which nothing would be left where one weight dominates."""
    log_w = np.array(WEIGHTS[name])
    found = log_sum_of_others(jnp.asarray(log_w, jnp.float32))
    np.testing.assert_allclose(found, without_each(log_w), rtol=1e-6)


@pytest.mark.parametrize("name", list(WEIGHTS))
def test_the_sum_of_the_other_logarithms(name: str) -> None:
    x = np.array(WEIGHTS[name]) - np.maximum(np.max(WEIGHTS[name]), -1e9)
    expected = np.array([np.delete(x, i).sum() for i in range(len(x))])
    np.testing.assert_allclose(sum_of_others(jnp.asarray(x, jnp.float32)), expected, rtol=1e-6)


def test_in_batches() -> None:
    x = -jnp.asarray(np.random.default_rng(1).gamma(1.0, size=(3, 4)), jnp.float32)
    for f in (log_sum_of_others, sum_of_others):
        np.testing.assert_allclose(f(x), jnp.stack([f(row) for row in x]), rtol=1e-6)


def test_the_sum_of_many_other_weights() -> None:
    log_w = np.random.default_rng(0).normal(size=3001) * 30
    found = log_sum_of_others(jnp.asarray(log_w, jnp.float32))
    np.testing.assert_allclose(found, without_each(np.asarray(log_w, np.float32).astype(float)), rtol=1e-6)


def model(s: sy.State, logit: Any) -> None:
    s.observe("x", dist.Normal(s.sample("z", dist.Bernoulli(0.3)), 1.0), 1.0)


def guide(s: sy.State, logit: Any) -> None:
    s.sample("z", dist.Bernoulli(logits=logit))


@pytest.mark.parametrize("objective", [sy.objectives.iwae, sy.objectives.vimco])
def test_memory_grows_with_the_particles_and_not_with_their_square(objective: Any) -> None:
    def memory(particles: int) -> int:
        def loss(logit: Any, key: Any) -> Any:
            return sy.evaluate(sy.propose(model, guide), key, logit, particles=particles, objective=objective).loss

        compiled: Any = jax.jit(jax.grad(loss)).lower(0.2, jax.random.key(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(4096) < 4096 * 100
