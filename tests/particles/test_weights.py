"""Log weights, on NumPy and on JAX arrays, against sums of plain weights."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.particles import weights

PLAIN = np.array([0.5, 0.0, 3.0, 1.5])
BOTH = pytest.mark.parametrize("array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])


def log(array: Callable[[Any], Any], plain: Any) -> Any:
    with np.errstate(divide="ignore"):
        return array(np.log(np.asarray(plain, np.float32)))


@BOTH
def test_sums_and_averages_of_weights(array: Callable[[Any], Any]) -> None:
    w = log(array, PLAIN)
    np.testing.assert_allclose(weights.log_sum(w), np.log(5.0), rtol=1e-6)
    np.testing.assert_allclose(weights.log_mean(w), np.log(1.25), rtol=1e-6)
    np.testing.assert_allclose(weights.normalize(w), PLAIN / 5.0, rtol=1e-6)
    np.testing.assert_allclose(weights.effective_sample_size(w), 25.0 / (0.25 + 9.0 + 2.25), rtol=1e-6)


@BOTH
def test_weights_far_from_one_neither_overflow_nor_vanish(array: Callable[[Any], Any]) -> None:
    for shift in (-2000.0, 2000.0):
        w = log(array, PLAIN) + shift
        np.testing.assert_allclose(weights.log_mean(w), np.log(1.25) + shift, rtol=1e-6)
        np.testing.assert_allclose(weights.normalize(w), PLAIN / 5.0, rtol=1e-3)
        np.testing.assert_allclose(weights.effective_sample_size(w), 25.0 / 11.5, rtol=1e-3)


@BOTH
def test_no_weight_at_all(array: Callable[[Any], Any]) -> None:
    w = log(array, np.zeros(3))
    assert weights.log_mean(w) == -np.inf
    assert np.isnan(weights.normalize(w)).all()
    assert np.isnan(weights.effective_sample_size(w))


@BOTH
def test_leading_axes_are_batches(array: Callable[[Any], Any]) -> None:
    plain = np.array([PLAIN, [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 7.0]])
    w = log(array, plain)
    np.testing.assert_allclose(weights.log_mean(w), np.log(plain.mean(axis=1)), atol=1e-6)
    np.testing.assert_allclose(weights.normalize(w), plain / plain.sum(axis=1)[:, None], rtol=1e-6)
    np.testing.assert_allclose(weights.effective_sample_size(w), [25.0 / 11.5, 4.0, 1.0], rtol=1e-6)


def test_numpy_in_is_numpy_out() -> None:
    w = np.log(PLAIN[2:])
    for function in (weights.log_sum, weights.log_mean, weights.normalize, weights.effective_sample_size):
        assert isinstance(function(w), np.ndarray | np.generic)
        assert isinstance(function(jnp.asarray(w)), jax.Array)


def test_the_gradient_of_log_z_passes_over_particles_without_weight() -> None:
    def log_z(shift: jax.Array) -> jax.Array:
        return weights.log_mean(jnp.array([0.5, -jnp.inf, 1.0]) + shift * jnp.array([1.0, 3.0, -2.0]))

    share = np.exp(0.5) / (np.exp(0.5) + np.exp(1.0))
    np.testing.assert_allclose(jax.grad(log_z)(0.0), share - 2.0 * (1 - share), rtol=1e-5)
