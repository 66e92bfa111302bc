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


OFFSETS = pytest.mark.parametrize("offset", [0.0, 1e5, -1e6, 1e7, -3.3e7])
# Single precision holds these differences at every offset.
SPREAD = np.array([0.0, -4.0, -12.0, -8.0, -np.inf, -4.0], np.float32)


@OFFSETS
@BOTH
def test_an_offset_changes_what_does_not_depend_on_it_not_at_all(array: Callable[[Any], Any], offset: float) -> None:
    w, moved = array(SPREAD), array(SPREAD + np.float32(offset))
    for function in (weights.normalize, weights.effective_sample_size):
        np.testing.assert_allclose(function(moved), function(w), rtol=1e-6)
    np.testing.assert_allclose(weights.normalize(moved).sum(), 1.0, rtol=1e-6)
    np.testing.assert_allclose(weights.log_mean(moved), weights.log_mean(w) + np.float32(offset), rtol=1.2e-7)
    factors = array(np.array([0.1, -0.3, 0.2, 0.0, 0.7, -0.1], np.float32))
    np.testing.assert_allclose(weights.log_increment(moved, factors), weights.log_increment(w, factors), rtol=1e-5)
    np.testing.assert_allclose(weights.mean(moved[:4]), -6.0 + np.float32(offset), rtol=1.2e-7)


@OFFSETS
def test_gradients_do_not_depend_on_an_offset(offset: float) -> None:
    def numbers(scale: jax.Array, start: Any) -> jax.Array:
        slope = scale * jnp.asarray([0.3, -0.2, 0.5, 0.1, 3.0, -0.4])
        w = start + slope
        shares, ess, log_z = weights.normalize(w), weights.effective_sample_size(w), weights.log_mean(w)
        return jnp.stack([shares[0], shares[3], ess, log_z, weights.log_increment(w, slope * slope)])

    found = jax.jacfwd(numbers)(0.0, SPREAD + np.float32(offset))
    with jax.enable_x64(True):
        expected = jax.jacfwd(numbers)(0.0, jnp.asarray(SPREAD, jnp.float64))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sums_of_many_weights_do_not_saturate() -> None:
    size = 2**24 + 10
    w = jnp.full(size, 3e6)
    assert int(jax.jit(weights.total)(jnp.ones(size))) == size
    np.testing.assert_allclose(jax.jit(weights.effective_sample_size)(w), size, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(weights.log_mean)(w), 3e6, rtol=1e-7)


@BOTH
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_weights_that_are_no_numbers_stay_visible(array: Callable[[Any], Any], bad: float) -> None:
    w = array(np.array([1e5, bad, -np.inf]))
    np.testing.assert_array_equal(weights.log_mean(w), bad)
    assert np.isnan(weights.normalize(w)).any()
    assert np.isnan(weights.effective_sample_size(w))
