"""Resampling of few particles in many batches."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.growth.measure import Growth, Job, growth
from steelyard.particles.resampling import ancestors, draw_noise

PARTICLES = 128


def weights(batches: int) -> Any:
    return jax.random.normal(jax.random.key(1), (batches, PARTICLES))


def ours(batches: int) -> Job:
    def one(key: Any, row: Any) -> Any:
        return ancestors(row, "systematic", draw_noise(key, "systematic", PARTICLES), PARTICLES)

    return jax.vmap(one), (jax.random.split(jax.random.key(0), batches), weights(batches))


def by_hand(batches: int) -> Job:
    """Systematic resampling in floats, rotated: else the first particles would get the first ancestors."""

    def one(key: Any, row: Any) -> Any:
        first, second = jax.random.split(key)
        positions = (jnp.arange(PARTICLES) + jax.random.uniform(first)) / PARTICLES
        indices = jnp.searchsorted(jnp.cumsum(jax.nn.softmax(row)), positions)
        return jnp.roll(indices, jax.random.randint(second, (), 0, PARTICLES))

    return jax.vmap(one), (jax.random.split(jax.random.key(0), batches), weights(batches))


def batches() -> Growth:
    """128 particles, by batches."""
    return growth("resampling 128 particles, by batches", (10, 100, 1000), ours, "searchsorted", by_hand)


ROWS = (batches,)
