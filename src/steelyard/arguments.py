"""Checks of arguments that several functions take. Each returns the argument as the library uses it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import ArgumentError
from steelyard.types import Key, is_traced

# Indices are integers of 32 bits.
MOST = 2**31 - 1


def check_key(key: Any, place: str) -> Key:
    """Return one key; words of `jax.random.PRNGKey` become the key that they are.

    Raises:
        ArgumentError: this is not one key.
    """
    dtype = getattr(key, "dtype", np.void)
    if jnp.issubdtype(dtype, jax.dtypes.prng_key) and key.shape == ():
        return key
    # Words are only taken for a key if the implementation that is in use has keys of as many.
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    if dtype == words.dtype and key.shape == words.shape:
        return jax.random.wrap_key_data(key)
    raise ArgumentError(
        f"{place}: key must be one key made by jax.random.key(seed), got {key!r}. Of an array of keys, take one, or "
        f"use jax.vmap."
    )


def check_count(count: Any, place: str, name: str = "particles", *, least: int = 1) -> int:
    """Return a whole number that is known before anything runs.

    Raises:
        ArgumentError: this is something else, or less than `least`.
    """
    if isinstance(count, int | np.integer) and not isinstance(count, bool) and count >= least:
        if count > MOST:
            raise ArgumentError(f"{place}: {name} is at most 2^31 - 1, got {count:,}.")
        return int(count)
    kind = "a positive number" if least == 1 else f"a number of at least {least}"
    raise ArgumentError(f"{place}: {name} is {kind}, known before running and whole, got {count!r}.")


def check_scale(scale: Any, place: str) -> Any:
    """Return a factor of a log density: a positive, finite number. One that JAX is tracing is not known yet.

    Raises:
        ArgumentError: this is something else.
    """
    if is_traced(scale) and scale.shape == () and jnp.issubdtype(scale.dtype, jnp.number):
        return scale
    if not is_traced(scale) and not isinstance(scale, bool | str) and np.ndim(scale) == 0:
        try:
            number = float(scale)
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if 0 < number < np.inf:
            return number
    raise ArgumentError(
        f"{place}: scale is one positive, finite number, got {scale!r}. For a part of the data it is the size of the "
        f"whole divided by the size of the part."
    )


def check_objective(objective: Any, place: str) -> Any:
    """Return an objective, or None.

    Raises:
        ArgumentError: this cannot be called.
    """
    if objective is None or callable(objective):
        return objective
    raise ArgumentError(
        f"{place}: an objective is a function of a Level, such as objective=sy.objectives.elbo, got {objective!r}."
    )
