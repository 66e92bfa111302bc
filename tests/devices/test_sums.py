"""Sums that do not depend on the order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.devices.sums import total_of_fractions
from steelyard.particles.weights import (
    effective_sample_size,
    effective_sample_size_in_any_order,
    log_mean,
    log_mean_in_any_order,
)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("size", [1, 7, 4096, 10_001])
def test_any_order_gives_the_same(size: int, x64: bool) -> None:
    with jax.enable_x64(x64):
        rng = np.random.default_rng(size)
        x = np.exp(-rng.exponential(5.0, size)).astype(float if x64 else np.float32)
        first, *others = (float(total_of_fractions(jnp.asarray(y))) for y in (x, np.sort(x), rng.permutation(x)))
        assert others == [first, first]
        np.testing.assert_allclose(first, np.sum(x.astype(np.longdouble)), rtol=1e-15 if x64 else 2e-7)


def test_many_small_numbers_next_to_a_large_one() -> None:
    x = np.full(2**20 + 3, 2.0**-22, np.float32)
    x[5] = 1.0
    np.testing.assert_allclose(total_of_fractions(jnp.asarray(x)), x.astype(float).sum(), rtol=1e-7)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([0.0, 0.0], 0.0),
        ([1.0, 1.0, 1.0], 3.0),
        ([0.5, 1.0 + 2.0**-23], 1.5),
        ([0.5, np.nan], np.nan),
        ([3.0, np.inf], np.inf),
    ],
)
def test_special_values(x: list[float], expected: float) -> None:
    np.testing.assert_equal(float(total_of_fractions(jnp.array(x))), expected)


def test_logarithms_and_their_gradients() -> None:
    log_w = jnp.array([900.0, 901.5, -jnp.inf, 899.0])
    for ours, plain in (
        (log_mean_in_any_order, log_mean),
        (effective_sample_size_in_any_order, effective_sample_size),
    ):
        np.testing.assert_allclose(ours(log_w), plain(log_w), rtol=1e-6)
        np.testing.assert_allclose(jax.grad(ours)(log_w), jax.grad(plain)(log_w), atol=1e-6)
        np.testing.assert_equal(float(ours(jnp.full(3, -jnp.inf))), float(plain(jnp.full(3, -jnp.inf))))
