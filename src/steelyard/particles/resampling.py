"""Which particle takes which ancestor.

A resampler is a deterministic map from normalised weights and uniform noise to ancestors, so that the same code runs
on random noise and, in `steelyard.testing`, on every piece of noise there is.

Proper weighting needs P(a_l = k) = w_k for every particle l. Systematic, stratified and residual resampling have it
only on average over l, because their ancestors come in order: a uniformly random rotation restores it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.maps import take
from steelyard.particles.weights import normalize
from steelyard.types import Key


class Noise(NamedTuple):
    """What a resampler draws: uniforms in [0, 1), and the rotation of the ancestors."""

    uniforms: Any
    rotation: Any


class Resampler(NamedTuple):
    """How many uniforms a method takes to draw L particles, its map to ancestors, and whether these are in order."""

    uniforms: Callable[[int], int]
    ancestors: Callable[[Any, Any, int], Any]
    ordered: bool


# Up to here a table of all comparisons, which is one operation, is faster than a loop.
FEW = 128


def _how_many_up_to(ordered: Any, positions: Any) -> Any:
    """Return how many of the ordered numbers are not above each position."""
    if isinstance(ordered, np.ndarray):
        return np.searchsorted(ordered, positions, side="right")
    if ordered.shape[0] <= FEW:
        return jnp.sum(ordered[:, None] <= positions[None, :], axis=0)
    return jnp.searchsorted(ordered, positions, side="right")


def _cdf(weights: Any) -> Any:
    """Return the weights laid end to end; rounding leaves the end of the sum near one."""
    cdf = weights.__array_namespace__().cumulative_sum(weights)
    return cdf / cdf[-1]


def _possible(indices: Any, weights: Any) -> Any:
    """Return the indices without those of weight zero: a parallel prefix sum may rise there, by rounding."""
    xp = weights.__array_namespace__()
    indices = xp.minimum(indices, weights.shape[0] - 1)
    return xp.where(take(weights, indices) > 0, indices, _heaviest(weights))


def _heaviest(weights: Any) -> Any:
    """Return the first particle of the largest weight."""
    size = weights.shape[0]
    if isinstance(weights, np.ndarray) or size <= FEW:
        return weights.__array_namespace__().argmax(weights)
    # Two vectorised reductions are faster than one that keeps the place along with the value.
    return jnp.min(jnp.where(weights == jnp.max(weights), jnp.arange(size), size - 1))


def _inverse_cdf(weights: Any, positions: Any, size: int) -> Any:
    """Return the particle at each position in [0, 1) when the weights lie end to end; never one of weight zero."""
    xp = weights.__array_namespace__()
    cdf = _cdf(weights)
    # A position may round up to one.
    positions = xp.minimum(positions, xp.asarray(1 - xp.finfo(cdf.dtype).epsneg, dtype=cdf.dtype))
    return _possible(_how_many_up_to(cdf, positions), weights)


def _strata(weights: Any, uniforms: Any, size: int) -> Any:
    """One position in each of L equal strata: systematic for one uniform, stratified for L of them."""
    xp = weights.__array_namespace__()
    if isinstance(weights, np.ndarray) or weights.shape[0] <= FEW:
        return _inverse_cdf(weights, (xp.arange(size) + uniforms) / size, size)
    # Strata are in order, so that nothing has to be searched: count the weights that end before each position.
    ends = size * _cdf(weights)
    stratum = jnp.clip(ends.astype(int), 0, size - 1)
    first = stratum + (ends - stratum > take(jnp.broadcast_to(uniforms, size), stratum))
    counts = jnp.zeros(size + 1, int).at[first].add(1, mode="promise_in_bounds", indices_are_sorted=True)
    return _possible(jnp.cumsum(counts)[:size], weights)


def whole_copies(weights: Any, size: int) -> Any:
    """Return floor(L w_k), for weights that may be too small by rounding."""
    xp = weights.__array_namespace__()
    return xp.floor(size * weights * (1 + 8 * xp.finfo(weights.dtype).eps))


def _residual(weights: Any, uniforms: Any, size: int) -> Any:
    """floor(L w_k) copies of each particle, and the rest from what is left of the weights."""
    xp = weights.__array_namespace__()
    copies = whole_copies(weights, size)
    slots, ends = xp.arange(size), xp.cumulative_sum(copies)
    rest = xp.maximum(size * weights - copies, 0.0)
    # Where nothing is left no slot takes from it; the weights only keep the division defined.
    rest = xp.where(xp.sum(rest) > 0, rest, weights)
    kept = xp.minimum(_how_many_up_to(ends, slots.astype(ends.dtype)), weights.shape[0] - 1)
    return xp.where(slots < ends[-1], kept, _inverse_cdf(rest, uniforms, size))


RESAMPLERS: dict[str, Resampler] = {
    "systematic": Resampler(lambda size: 1, _strata, ordered=True),
    "stratified": Resampler(lambda size: size, _strata, ordered=True),
    "multinomial": Resampler(lambda size: size, _inverse_cdf, ordered=False),
    "residual": Resampler(lambda size: size, _residual, ordered=True),
}


def draw_noise(key: Key, method: str, size: int) -> Noise:
    """Draw the noise that a method needs for `size` particles."""
    draws = jax.random.uniform(key, (RESAMPLERS[method].uniforms(size) + 1,))
    return Noise(draws[1:], jnp.minimum((draws[0] * size).astype(int), size - 1))


def ancestors(log_weights: Any, method: str, noise: Noise, size: int) -> Any:
    """Return for each of `size` particles the index of its ancestor, with probability proportional to its weight.

    Example:
        >>> import numpy as np
        >>> from steelyard.particles.resampling import Noise, ancestors
        >>> ancestors(np.log([0.1, 0.2, 0.7]), "systematic", Noise(np.array([0.5]), 1), 3)
        array([2, 2, 1])
    """
    resampler = RESAMPLERS[method]
    with np.errstate(invalid="ignore"):
        indices = resampler.ancestors(normalize(log_weights), noise.uniforms, size)
    if not resampler.ordered:
        return indices
    xp = indices.__array_namespace__()
    return take(indices, (xp.arange(size) + noise.rotation) % size)


def distinct(indices: Any) -> Any:
    """Return how many different ancestors there are."""
    if isinstance(indices, np.ndarray):
        return np.unique(indices).size
    return jnp.zeros(indices.shape[0], bool).at[indices].set(True).sum()
