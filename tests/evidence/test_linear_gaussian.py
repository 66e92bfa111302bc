"""A linear-Gaussian state-space model against the Kalman filter."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steelyard as sy
from steelyard.types import Method
from tests.evidence.exact import kalman_filter

pytestmark = pytest.mark.long

STEPS = 30
MEAN, COVARIANCE = np.array([1.0, -0.5]), np.array([[1.0, 0.4], [0.4, 0.8]])
TRANSITION, PROCESS_NOISE = np.array([[0.8, 0.4], [-0.3, 0.7]]), np.array([[0.5, 0.2], [0.2, 0.3]])
EMISSION, OBSERVATION_NOISE = np.array([[1.0, 0.3], [-0.2, 0.9]]), np.array([[3.0, -0.8], [-0.8, 2.0]])


def simulate() -> np.ndarray:
    rng = np.random.default_rng(12)
    z, xs = rng.multivariate_normal(MEAN, COVARIANCE), []
    for _ in range(STEPS):
        xs.append(rng.multivariate_normal(EMISSION @ z, OBSERVATION_NOISE))
        z = rng.multivariate_normal(TRANSITION @ z, PROCESS_NOISE)
    return np.array(xs)


XS = simulate()
Carried = tuple[jax.Array, jax.Array]


def prior(z: jax.Array | None) -> tuple[Any, np.ndarray]:
    """Return the mean and the covariance of the next state."""
    return (jnp.asarray(MEAN), COVARIANCE) if z is None else (jnp.asarray(TRANSITION) @ z, PROCESS_NOISE)


class Gaussian:
    """A Gaussian of known covariance. NumPyro's solves a triangular system for every particle."""

    def __init__(self, mean: Any, covariance: np.ndarray) -> None:
        factor = np.linalg.cholesky(covariance)
        self.mean, self.factor, self.inverse = mean, jnp.asarray(factor), jnp.asarray(np.linalg.inv(factor))
        self.log_norm = np.linalg.slogdet(2 * np.pi * covariance)[1] / 2

    def sample(self, key: jax.Array) -> jax.Array:
        return self.mean + self.factor @ jax.random.normal(key, (2,))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum((self.inverse @ (value - self.mean)) ** 2) - self.log_norm


def model(s: sy.State, t: int, z: jax.Array | None, xs: jax.Array) -> Carried:
    z = s.sample(f"z{t}", Gaussian(*prior(z)))
    s.observe(f"x{t}", Gaussian(jnp.asarray(EMISSION) @ z, OBSERVATION_NOISE), xs[t])
    return z, xs


def optimal(s: sy.State, t: int, z: jax.Array | None, xs: jax.Array) -> None:
    """The locally optimal proposal, p(z_t | z_{t-1}, x_t)."""
    mean, covariance = prior(z)
    gain = covariance @ EMISSION.T @ np.linalg.inv(EMISSION @ covariance @ EMISSION.T + OBSERVATION_NOISE)
    posterior = covariance - gain @ EMISSION @ covariance
    s.sample(f"z{t}", Gaussian(mean + jnp.asarray(gain) @ (xs[t] - jnp.asarray(EMISSION) @ mean), posterior))


def start(program: Any) -> Any:
    return lambda s, xs: program(s, 0, None, xs)


def step(program: Any, t: int) -> Any:
    return lambda s, carried: program(s, t, *carried)


def bootstrap(steps: int, method: str, threshold: float | None) -> Any:
    q: Any = start(model)
    for t in range(1, steps):
        q = sy.resample(sy.compose(step(model, t), q), method=cast(Method, method), threshold=threshold)
    return q


def guided(steps: int, method: str | None, threshold: float | None) -> Any:
    q: Any = sy.propose(start(model), start(optimal))
    for t in range(1, steps):
        q = q if method is None else sy.resample(q, method=cast(Method, method), threshold=threshold)
        q = sy.compose(sy.propose(step(model, t), step(optimal, t)), q)
    return q


def check(q: Any, steps: int, runs: int = 250) -> None:
    log_z = kalman_filter(MEAN, COVARIANCE, TRANSITION, PROCESS_NOISE, EMISSION, OBSERVATION_NOISE, XS[:steps])
    sy.testing.check_evidence(q, log_z, jnp.asarray(XS), key=jax.random.key(1), particles=1000, runs=runs)


def test_bootstrap_filter() -> None:
    check(bootstrap(STEPS, "systematic", None), STEPS)


def test_guided_filter_that_resamples_where_needed() -> None:
    check(guided(STEPS, "stratified", 0.5), STEPS)


@pytest.mark.parametrize("method", ["multinomial", "residual"])
def test_other_resamplers(method: str) -> None:
    check(bootstrap(3, method, None), 3)


def test_guided_filter_without_resampling() -> None:
    check(guided(3, None, None), 3)


def test_a_proposal_of_too_small_a_spread_is_not_taken_for_a_good_one() -> None:
    """Its weights look even, but it does not cover the target: the evidence comes out wrong or too noisy."""

    def narrow(s: sy.State, xs: jax.Array) -> None:
        s.sample("z0", Gaussian(jnp.asarray(MEAN) + 2.0, 0.02 * COVARIANCE))

    with pytest.raises(AssertionError):
        check(sy.propose(start(model), narrow), 1)
