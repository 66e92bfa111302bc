"""Which particle takes which ancestor.

A resampler is a deterministic map from weights and uniform noise to ancestors, so that the same code runs on random
noise and, in `steelyard.testing`, on every piece of noise there is. It is written twice: here in NumPy, in floats of 64
bits, and for JAX in `exact`.

Proper weighting needs P(a_l = k) = w_k for every particle l. Systematic, stratified and residual resampling have it
only on average over l, because their ancestors come in order: a uniformly random rotation restores it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.arguments import MOST
from steelyard.arrays.wide import Wide, high_product
from steelyard.devices.layout import devices
from steelyard.devices.routes import Routes, route
from steelyard.errors import ArgumentError
from steelyard.particles import exact
from steelyard.particles.weights import normalize
from steelyard.types import Key


class Noise(NamedTuple):
    """What a resampler draws: uniforms in [0, 1), and the rotation of the ancestors.

    The uniforms are floats of 64 bits for NumPy; for JAX they are 64 random bits each, in two words.
    """

    uniforms: Any
    rotation: Any

    @classmethod
    def from_uniforms(cls, uniforms: Any, rotation: Any) -> "Noise":
        """Return for JAX the same noise as floats of 64 bits in [0, 1).

        Example:
            >>> from steelyard.particles.resampling import Noise
            >>> noise = Noise.from_uniforms([0.25, 0.7], 1)
            >>> noise.uniforms.high[0] == 2**30, noise.to_uniforms().uniforms.tolist()
            (Array(True, dtype=bool), [0.25, 0.7])
        """
        high, fraction = np.divmod(np.asarray(uniforms, np.float64) * 2.0**32, 1.0)
        words = (jnp.asarray(x.astype(np.uint32)) for x in (high, fraction * 2.0**32))
        return cls(Wide(*words), rotation)

    @classmethod
    def stacked(cls, noises: "list[Noise]") -> "Noise":
        """Return the noise of several resamplers, for NumPy, along a first axis."""
        uniforms, rotations = zip(*noises, strict=True)
        return cls(np.stack(uniforms), np.array(rotations))

    def to_uniforms(self) -> "Noise":
        """Return for NumPy the same noise as for JAX, in the 53 bits that a float has below one."""
        high, low = (np.asarray(x, np.float64) for x in self.uniforms)
        return Noise((high + np.floor(low / 2.0**11) / 2.0**21) / 2.0**32, int(self.rotation))


class Resampler(NamedTuple):
    """How many uniforms a method takes to draw L particles, its map to ancestors, and whether these are in order.

    The map takes normalised weights in NumPy and log weights in JAX.
    """

    uniforms: Callable[[int], int]
    ancestors: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
    exact: Callable[[Any, Wide, int], Any]
    ordered: bool


def _inverse_cdf(weights: np.ndarray, positions: np.ndarray, size: int) -> np.ndarray:
    """Return the particle at each position in [0, 1) when the weights lie end to end; never one of weight zero."""
    cdf = np.cumsum(weights)
    indices = np.searchsorted(cdf / cdf[-1], positions, side="right")
    # A position may round up to one.
    indices = np.minimum(indices, len(weights) - 1)
    return np.where(weights[indices] > 0, indices, np.argmax(weights))


def _strata(weights: np.ndarray, uniforms: np.ndarray, size: int) -> np.ndarray:
    """One position in each of L equal strata: systematic for one uniform, stratified for L of them."""
    return _inverse_cdf(weights, (np.arange(size) + uniforms) / size, size)


def whole_copies(weights: np.ndarray, size: int) -> np.ndarray:
    """Return floor(L w_k), for weights that may be too small by rounding."""
    return np.floor(size * weights * (1 + 8 * np.finfo(weights.dtype).eps))


def _residual(weights: np.ndarray, uniforms: np.ndarray, size: int) -> np.ndarray:
    """floor(L w_k) copies of each particle, and the rest from what is left of the weights."""
    copies = whole_copies(weights, size)
    slots, ends = np.arange(size), np.cumsum(copies)
    rest = np.maximum(size * weights - copies, 0.0)
    # Where nothing is left no slot takes from it; the weights only keep the division defined.
    rest = rest if np.sum(rest) > 0 else weights
    kept = np.minimum(np.searchsorted(ends, slots, side="right"), len(weights) - 1)
    return np.where(slots < ends[-1], kept, _inverse_cdf(rest, uniforms, size))


RESAMPLERS: dict[str, Resampler] = {
    "systematic": Resampler(lambda size: 1, _strata, exact.strata, ordered=True),
    "stratified": Resampler(lambda size: size, _strata, exact.strata, ordered=True),
    "multinomial": Resampler(lambda size: size, _inverse_cdf, exact.inverse_cdf, ordered=False),
    "residual": Resampler(lambda size: size, _residual, exact.residual, ordered=True),
}


class UniformsBySlot(NamedTuple):
    """The uniforms of so many slots, 64 random bits each, which each device draws where it needs them."""

    word_at: Callable[[Any], Any]
    size: int

    def of_slots(self, slots: Any) -> Wide:
        """Return the uniforms of some slots."""
        high, low = (self.word_at((slots + start).astype(jnp.uint32)) for start in (2, self.size + 2))
        return Wide(high, low)


def draw_noise(key: Key, method: str, size: int, word_at: Callable[[Any], Any] | None = None) -> Noise:
    """Draw the noise that a method needs for `size` particles, in JAX.

    `word_at` gives the words that the key draws at some places, without the others, if there is a way.
    """
    count = RESAMPLERS[method].uniforms(size)
    if devices(size) > 1 and method == "stratified" and word_at is not None:
        return Noise(UniformsBySlot(word_at, size), _rotation(word_at(jnp.arange(2, dtype=jnp.uint32)), size))
    words = jax.random.bits(key, (2 * count + 2,), jnp.uint32)
    return Noise(Wide(words[2 : count + 2], words[count + 2 :]), _rotation(words, size))


def _rotation(words: Any, size: int) -> Any:
    return jax.jit(high_product)(Wide(words[0], words[1]), Wide.of(size)).low.astype(jnp.int32)


def ancestors(log_weights: Any, method: str, noise: Noise, size: int, stay: Any = False) -> Any:
    """Return for each of `size` particles the index of its ancestor, with probability proportional to its weight.

    Where particles are on several devices and ancestors come in order, they are `Routes` through the devices.

    Args:
        log_weights: the log weights of the particles.
        method: a name in `RESAMPLERS`.
        noise: what the method draws.
        size: how many to draw.
        stay: whether all particles stay where they are; if so, `size` is how many there are.

    Raises:
        ArgumentError: there are more particles than indices of 32 bits.

    Example:
        >>> import numpy as np
        >>> from steelyard.particles.resampling import Noise, ancestors
        >>> ancestors(np.log([0.1, 0.2, 0.7]), "systematic", Noise(np.array([0.5]), 1), 3)
        array([2, 2, 1])
    """
    particles = log_weights.shape[0]
    if max(size, particles) > MOST:
        raise ArgumentError(f"resample: at most 2^31 - 1 particles, got {max(size, particles):,}.")
    resampler = RESAMPLERS[method]
    if not isinstance(log_weights, np.ndarray) and resampler.exact is exact.strata and size == particles:
        if devices(size) > 1:
            slot_ends = partial(exact.slot_ends, uniforms=noise.uniforms, particles=particles, size=size)
            return route(exact.masses(log_weights), slot_ends, noise.rotation, stay, size)
    indices = _indices(log_weights, resampler, noise, size)
    xp = log_weights.__array_namespace__()
    return indices if stay is False else xp.where(stay, xp.arange(size), indices)


def _indices(log_weights: Any, resampler: Resampler, noise: Noise, size: int) -> Any:
    if isinstance(log_weights, np.ndarray):
        with np.errstate(invalid="ignore"):
            indices = resampler.ancestors(normalize(log_weights), noise.uniforms, size)
        return np.roll(indices, -noise.rotation) if resampler.ordered else indices
    # One equation, which is traced once for all resamplings of as many particles.
    indices = jax.jit(resampler.exact, static_argnums=2)(log_weights, noise.uniforms, size).astype(int)
    if not resampler.ordered:
        return indices
    # Not jnp.roll: it asks whether the shift is known, and if not, JAX looks through all that was traced before.
    return jax.lax.dynamic_slice(jnp.concatenate([indices, indices]), (noise.rotation,), (size,))


def distinct(indices: Any) -> Any:
    """Return how many different ancestors there are."""
    if isinstance(indices, Routes):
        return indices.distinct
    if isinstance(indices, np.ndarray):
        return np.unique(indices).size
    return jnp.zeros(indices.shape[0], bool).at[indices].set(True).sum()
