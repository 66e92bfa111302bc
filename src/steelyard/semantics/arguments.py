"""Checks of arguments that several functions take."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import ArgumentError


def check_key(key: Any, place: str) -> None:
    """Raise `ArgumentError` unless this is one key of `jax.random.key`."""
    if not jnp.issubdtype(getattr(key, "dtype", np.void), jax.dtypes.prng_key) or key.shape != ():
        raise ArgumentError(f"{place}: key must be one key made by jax.random.key(seed), got {key!r}.")


def check_count(particles: Any, place: str) -> int:
    """Raise `ArgumentError` unless this is a number of particles, and return it."""
    if isinstance(particles, bool) or not isinstance(particles, int) or particles < 1:
        raise ArgumentError(f"{place}: particles is a positive number, known before running, got {particles!r}.")
    return particles
