"""Ancestors in JAX, exact for up to 2^31 - 1 particles in single precision.

Weights become integers of 62 bits, by a power of two that loses nothing of their digits. Prefix sums of integers are
exact, and equal weights end at equal distances. A float of 32 bits tells at most 2^24 particles apart.

Every function has the form of its namesake in `resampling`, where it is written in plain floats.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from steelyard.arrays.wide import Wide, add, high_product, less, prefix_sums, ratio
from steelyard.devices.sums import total_of_fractions
from steelyard.maps import take
from steelyard.particles.weights import scaled

# Up to here a table of all comparisons, which is one operation, is faster than a loop.
FEW = 128

# So many rows of a table are summed at a time.
ROWS = 32

# Positions have so many bits behind the point, so that their integer part may have 31.
FRACTION = 30


def masses(log_weights: Any) -> Wide:
    """Return integers in proportion to the weights, with a sum between 0.7 and 1.6 times 2^62; 0 if it is undefined."""
    weights = scaled(jax.lax.stop_gradient(log_weights))
    whole = total_of_fractions(weights)
    number = weights * (2.0**62 / jax.lax.reduce_precision(whole, exponent_bits=8, mantissa_bits=0))

    def split(number: Any) -> Wide:
        high = jnp.floor(number * 2.0**-32)
        low = number - high * 2.0**32
        middle = jnp.floor(low * 2.0**-16)
        # Conversions to signed integers are faster on a CPU.
        high, middle, low = (x.astype(jnp.int32) for x in (high, middle, low - middle * 2.0**16))
        return Wide(high.astype(jnp.uint32), ((middle << 16) | low).astype(jnp.uint32))

    return _computed_once((whole > 0) & (whole < jnp.inf), split, number)


def _computed_once(defined: Any, f: Any, x: Any) -> Any:
    """Return f(x), or zeros where that is not defined, as arrays in memory.

    XLA would merge f with everything that uses its result, and compute it again in each; not across a condition.
    """
    return jax.lax.cond(defined, f, lambda x: jax.tree.map(jnp.zeros_like, jax.eval_shape(f, x)), x)


def inverse_cdf(log_weights: Any, uniforms: Wide, size: int) -> Any:
    """Return the particle at each position when the weights lie end to end."""
    return _at_positions(masses(log_weights), uniforms)


def strata(log_weights: Any, uniforms: Wide, size: int) -> Any:
    """One position in each of L equal strata: systematic for one uniform, stratified for L of them."""
    ends = prefix_sums(masses(log_weights))
    particles = ends.low.shape[0]
    return _filled(slot_ends(ends, ends.last(), uniforms, particles, size), size, particles)


def slot_ends(ends: Wide, whole: Wide, uniforms: Any, particles: int, size: int) -> Any:
    """Return, for each particle of some, the slot at which the next one begins.

    Args:
        ends: where its weight ends, when all of them lie end to end.
        whole: the sum of all weights.
        uniforms: one for all strata, or one for each.
        particles: how many particles there are.
        size: how many slots.
    """
    ends, bits = _in_strata(ends, whole, particles, size)
    stratum = ends.shifted(-bits).low.astype(jnp.int32)
    offset = ends.shifted(64 - bits)
    mine = uniforms.of_slots(jnp.minimum(stratum, size - 1))
    # The low words matter only where few are drawn from many; elsewhere they are not even computed.
    inside = mine.high < offset.high if bits <= 32 else less(mine, offset)
    return stratum + inside


def residual(log_weights: Any, uniforms: Wide, size: int) -> Any:
    """floor(L w_k) copies of each particle, and the rest from what is left of the weights."""
    mass = masses(log_weights)
    share, bits = _in_strata(mass, prefix_sums(mass).last(), mass.low.shape[0], size)
    # To the nearest: a weight that is a multiple of 1/L but for rounding counts as one.
    share, bits = add(share, Wide.of(1)).shifted(-1), bits - 1
    ends = prefix_sums(share.shifted(-bits).low.astype(jnp.int32))
    kept = _filled(jnp.minimum(ends, size), size, ends.shape[0])
    drawn = _at_positions(share.shifted(64 - bits).shifted(bits - 64), uniforms)
    return jnp.where(jnp.arange(size) < ends[-1], kept, drawn)


def _in_strata(mass: Wide, whole: Wide, particles: int, size: int) -> tuple[Wide, int]:
    """Return masses in units of the stratum, and how many bits are behind the point: more, if strata are few."""
    finer = max(0, particles.bit_length() - size.bit_length())
    bits = FRACTION + finer
    return high_product(mass, ratio(Wide.of(size << bits), whole)), bits


def _at_positions(mass: Wide, uniforms: Wide) -> Any:
    """Return the particle at each position in [0, 1) when the masses lie end to end."""
    ends = prefix_sums(mass)
    positions = high_product(uniforms, ends.last())
    return jnp.minimum(_how_many_up_to(ends, positions), ends.low.shape[0] - 1)


def _how_many_up_to(ordered: Wide, positions: Wide) -> Any:
    """Return how many of the ordered numbers are not above each position."""
    size = ordered.low.shape[0]
    if size <= FEW:
        return _counted(lambda part: ~less(positions.expanded(0), ordered.rows(part).expanded(1)), size)

    def halve(_: Any, bounds: Any) -> Any:
        low, high = bounds
        middle = low + (high - low) // 2
        above = (low == high) | less(positions, take(ordered, jnp.minimum(middle, size - 1)))
        return jnp.where(above, low, middle + 1), jnp.where(above, middle, high)

    start = jnp.zeros_like(positions.low, jnp.int32)
    return jax.lax.fori_loop(0, size.bit_length(), halve, (start, start + size))[0]


def _counted(flags: Callable[[slice], Any], rows: int) -> Any:
    """Return how many flags hold in each column of a table, from a function that gives some of its rows.

    XLA on a CPU stores a table before it sums it up, if it has more rows than that: under `vmap` one for each batch.
    """
    return sum(jnp.sum(flags(slice(start, start + ROWS)), axis=0) for start in range(0, rows, ROWS))


def _filled(first: Any, size: int, particles: int) -> Any:
    """Return who holds each of L slots, where `first` is the slot at which the next particle begins."""
    if particles <= FEW:
        # They are in order, and stay as they are. XLA would compute them again for every slot; not across a prefix sum.
        first = jax.lax.cummax(first)
        held = _counted(lambda part: first[part, None] <= jnp.arange(size)[None, :], particles)
    else:
        begin = jnp.zeros(size + 1, jnp.int32).at[first].add(1, mode="promise_in_bounds", indices_are_sorted=True)
        held = prefix_sums(begin[:size])
    return jnp.minimum(held, particles - 1)
