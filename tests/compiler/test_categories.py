"""Draws of categories: which one lies at a position, for few and many of them, shared by particles or not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from steelyard.compiler.categories import BLOCK, FEW, category_at

SIZES = [1, FEW, FEW + 1, 5 * BLOCK, 4099]


def weights(size: int) -> np.ndarray:
    """Probabilities, some of them zero, that are far from equal."""
    rng = np.random.default_rng(size)
    mass = rng.gamma(0.3, size=size) * (rng.random(size) < 0.7)
    mass[size // 2] += 0.01
    return (mass / mass.sum()).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_the_category_is_that_of_exact_sums(size: int) -> None:
    p = weights(size)
    u = np.random.default_rng(0).random(3000).astype(np.float32)
    found = np.asarray(jax.jit(jax.vmap(category_at, (None, 0)))(p, u))
    exact = np.cumsum(p.astype(np.float64))
    assert (p[found] > 0).all()
    # The position is in the interval of the category, but for the rounding of a sum.
    error = 1e-6
    assert (u * exact[-1] < exact[found] + error).all()
    assert (u * exact[-1] > exact[found] - p[found] - error).all()


@pytest.mark.parametrize("size", SIZES)
def test_shared_probabilities_and_those_of_each_particle_give_the_same(size: int) -> None:
    p = weights(size)
    u = jnp.asarray(np.random.default_rng(1).random(60), jnp.float32)
    shared = jax.vmap(category_at, (None, 0))(p, u)
    own = jax.vmap(category_at)(jnp.tile(p, (60, 1)), u)
    rows = category_at(jnp.tile(p, (60, 1)), u)
    nested = jax.vmap(jax.vmap(category_at, (None, 0)))(jnp.tile(p, (4, 1)), u.reshape(4, 15))
    for other in (own, rows, nested.ravel()):
        np.testing.assert_array_equal(other, shared)
    assert int(category_at(p, u[7])) == int(shared[7])


@pytest.mark.parametrize("size", [FEW, 200])
def test_each_row_has_its_own_probabilities(size: int) -> None:
    p = np.eye(size, dtype=np.float32)[[3, 0, size - 1, 17]].reshape(2, 2, size)
    u = jnp.array([[0.0, 0.3], [1 - 2**-23, 0.9]])
    np.testing.assert_array_equal(category_at(jnp.asarray(p), u), [[3, 0], [size - 1, 17]])
    assert category_at(jnp.zeros((0, size)), jnp.zeros(0)).shape == (0,)


@pytest.mark.parametrize("size", [9, 1000])
@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-23])
def test_categories_of_probability_zero_at_either_end(size: int, u: float) -> None:
    for first, last in ((1, 1), (2, size - 3), (size // 2, size // 2 + 1), (size - 2, size - 2)):
        inside = (np.arange(size) >= first) & (np.arange(size) <= last)
        found = int(category_at(jnp.where(inside, 1 / inside.sum(), 0.0), jnp.asarray(u)))
        assert first <= found <= last


@pytest.mark.parametrize("size", [9, 1000])
def test_a_sum_that_is_no_number_gives_the_last_category(size: int) -> None:
    p = jnp.full(size, 1 / size)
    for bad in (jnp.zeros(size), p.at[3].set(jnp.nan), p.at[size // 2].set(jnp.inf), jnp.full(size, jnp.nan)):
        for u in (0.0, 0.4):
            assert int(category_at(bad, jnp.asarray(u))) == size - 1


def test_a_million_equal_categories_in_single_precision() -> None:
    size, count = 10**6, 10**6
    u = jax.random.uniform(jax.random.key(0), (count,))
    found = np.asarray(jax.jit(jax.vmap(category_at, (None, 0)))(jnp.full(size, 1e-6), u))
    assert scipy.stats.kstest(found / size, "uniform").pvalue > 1e-3
    # A random number has 23 bits: eight values for each category, which fall on them unevenly. A sum that begins at the
    # first category, in place of the first of the block, would take 7% from the last one of each block.
    counts = np.bincount(found % BLOCK, minlength=BLOCK)
    assert (np.abs(counts * BLOCK / count - 1) < 0.05).all()


@pytest.mark.parametrize("size", [9, 1000])
def test_types_are_those_of_indices(size: int) -> None:
    for x64 in (False, True):
        with jax.enable_x64(x64):
            p, u = jnp.full(size, 1 / size), jnp.asarray(0.3)
            assert category_at(p, u).dtype == jnp.arange(1).dtype
            assert category_at(p.astype(jnp.float16), u).dtype == jnp.arange(1).dtype


def memory(particles: int, size: int, own: bool) -> int:
    p = jax.ShapeDtypeStruct((particles, size) if own else (size,), jnp.float32)
    u = jax.ShapeDtypeStruct((particles,), jnp.float32)
    compiled: Any = jax.jit(jax.vmap(category_at, (0 if own else None, 0))).lower(p, u).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_memory_is_that_of_particles_or_of_a_part_of_their_probabilities() -> None:
    assert memory(20_000, 1000, own=False) < 20_000 * 48
    assert memory(2_000, 1000, own=True) < 2_000 * 1000 * 4
