"""One particle drawn in proportion to its weight, in JAX."""

from math import isqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from steelyard.particles import weights


class Choice(NamedTuple):
    """A particle, and whether there was one to draw: not, if all weights are zero, or one is NaN or infinite."""

    index: Any
    possible: Any


def choose(log_weights: Any, uniforms: Any) -> Choice:
    """Draw a block of particles, and then one of the block: about sqrt(L) of sqrt(L) particles each.

    Sums of few numbers are exact to the last digits, where one over all particles in single precision would not tell
    some of them apart; and only few of them are needed one by one. A particle of weight zero is never drawn.

    Args:
        log_weights: one for each particle.
        uniforms: two numbers in [0, 1), such as `jax.random.uniform` draws.

    Example:
        >>> import jax.numpy as jnp
        >>> from steelyard.estimates.categorical import choose
        >>> log_weights = jnp.log(jnp.array([0.2, 0.0, 0.5, 0.3]))
        >>> [int(choose(log_weights, jnp.array(u)).index) for u in ([0.1, 0.9], [0.9, 0.1])]
        [0, 2]
    """
    size = log_weights.shape[0]
    width = isqrt(size - 1) + 1
    blocks = jnp.pad(log_weights, (0, -size % width), constant_values=-jnp.inf).reshape(-1, width)
    sums = jnp.sum(weights.scaled(blocks.reshape(-1)).reshape(-1, width), axis=1)
    block = _at(uniforms[0], sums)
    index = block * width + _at(uniforms[1], weights.scaled(blocks[block]))
    whole = jnp.sum(sums)
    return Choice(jnp.minimum(index, size - 1), (whole > 0) & (whole < jnp.inf))


def _at(uniform: Any, masses: Any) -> Any:
    """Return which of the masses, end to end, lies at a part of their sum; never one of zero."""
    ends = jax.lax.cumsum(masses)
    return jnp.minimum(jnp.sum(ends <= uniform * ends[-1]), len(masses) - 1)
