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
    """Systematic resampling in floats."""

    def one(key: Any, row: Any) -> Any:
        positions = (jnp.arange(PARTICLES) + jax.random.uniform(key)) / PARTICLES
        return jnp.searchsorted(jnp.cumsum(jax.nn.softmax(row)), positions)

    return jax.vmap(one), (jax.random.split(jax.random.key(0), batches), weights(batches))


def batches() -> Growth:
    """128 particles, by batches."""
    return growth("resampling 128 particles, by batches", (10, 100, 1000), ours, "searchsorted", by_hand)


ROWS = (batches,)
