"""Sums that do not depend on the order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.devices.sums import total_in_any_order, total_of_fractions
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


def test_second_derivatives_in_a_loop() -> None:
    """JAX forgets the rule for derivatives in the gradient of a loop."""

    def value(total: Any, t: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            return jnp.exp(-t * total(x) * x), None

        return jnp.sum(jax.lax.scan(step, jnp.array([0.3, 0.9]) * t, None, length=3)[0] ** 2)

    ours, plain = (jax.hessian(lambda t, f=f: value(f, t))(0.7) for f in (total_of_fractions, jnp.sum))
    np.testing.assert_allclose(ours, plain, rtol=1e-5)


def test_any_numbers() -> None:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(1000, 5)) * np.array([1.0, 1e-4, 1e-30, 3e30, 0.0])).astype(np.float32)
    first, other = (np.asarray(total_in_any_order(jnp.asarray(y))) for y in (x, rng.permutation(x)))
    np.testing.assert_array_equal(first, other)
    np.testing.assert_allclose(first, x.astype(float).sum(axis=0), rtol=1e-5)
    assert np.isnan(total_in_any_order(jnp.array([1.0, np.nan]))) and np.isnan(total_in_any_order(jnp.array([np.inf])))
