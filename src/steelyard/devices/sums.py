"""Sums that are the same to the last bit in any order, and so on any number of devices.

Particles depend on sums over all of them: the average weight becomes everybody's weight, and decides who is an ancestor
later on. A sum of floats depends on the order. Here numbers become integers, whose sums are exact.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.devices.layout import AXIS, SPLIT, WHOLE, apart_on_devices, devices

# A digit has so many bits. A block of as many numbers as a digit has values adds up exactly in a float.
BITS = {jnp.dtype(jnp.float32): 12, jnp.dtype(jnp.float64): 26}
# 48 bits: of a number that is 2^-24 of the largest, all that a float of 32 bits has.
DIGITS = {jnp.dtype(jnp.float32): 4, jnp.dtype(jnp.float64): 3}


@jax.custom_jvp
def total_of_fractions(x: Any) -> Any:
    """Return the sum of numbers in [0, 1], up to 2^31 of them, whatever the order; NaN or inf, if one is.

    What is below 2^-48 is cut off each number, in double precision what is below 2^-78.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from steelyard.devices.sums import total_of_fractions
        >>> x = jax.random.uniform(jax.random.key(0), (100_000,))
        >>> bool(total_of_fractions(x) == total_of_fractions(jnp.sort(x))), bool(jnp.sum(x) == jnp.sum(jnp.sort(x)))
        (True, False)
    """
    if devices(x.shape[0]) > 1:
        sums, top, defined = apart_on_devices(_summed, (SPLIT,), (WHOLE, WHOLE, WHOLE))(x)
        top = jnp.where(defined, top, jnp.nan)
    else:
        sums, top = _sums(x), jnp.max(x)
    unit, value = 1.0, jnp.zeros((), x.dtype)
    for high, low in sums:
        unit = unit / 2.0 ** BITS[x.dtype]
        # Products with a power of two are exact, so that it does not matter how they are rounded.
        value = value + (high.astype(x.dtype) * (unit * 2.0 ** BITS[x.dtype]) + low.astype(x.dtype) * unit)
    return jnp.where(top < jnp.inf, value, top)


@total_of_fractions.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    # JAX forgets this rule in the gradient of a loop, and takes second derivatives of what is here. The numbers that
    # are added are zero, and have the derivative.
    still = jax.lax.stop_gradient(x)
    zero = jnp.sum(jnp.where(jnp.isfinite(still), x - still, 0.0))
    return jax.lax.stop_gradient(total_of_fractions(still)) + zero, jnp.sum(dx)


def total_in_any_order(x: Any) -> Any:
    """Return the sum of any numbers along the first axis, whatever the order; NaN, if one is not finite.

    Arrays of NumPy are summed by NumPy. What is below 2^-48 of the largest is cut off each number, in double precision
    what is below 2^-78.

    Example:
        >>> import jax.numpy as jnp
        >>> from steelyard.devices.sums import total_in_any_order
        >>> total_in_any_order(jnp.array([[3e7, -1.0], [0.25, 0.5]]))
        Array([ 3.0e+07, -5.0e-01], dtype=float32)
    """
    if isinstance(x, np.ndarray):
        return np.sum(x, axis=0)
    if x.ndim > 1:
        return jax.vmap(total_in_any_order, in_axes=-1, out_axes=-1)(x)
    # A power of two, by which division is exact.
    top = jnp.max(jnp.abs(x))
    unit = jnp.ldexp(jnp.ones((), x.dtype), jnp.frexp(top)[1])
    positive, negative = (total_of_fractions(jnp.maximum(y, 0.0) / unit) for y in (x, -x))
    return jnp.where(jnp.isfinite(top), (positive - negative) * unit, jnp.nan)


def _summed(x: Any) -> Any:
    # The largest number of several devices is a number, even if one of them has NaN.
    top = jnp.max(x)
    return jax.lax.psum(_sums(x), AXIS), jax.lax.pmax(top, AXIS), jax.lax.psum(jnp.isnan(top).astype(int), AXIS) == 0


def _sums(x: Any) -> list[tuple[Any, Any]]:
    """Return the sum of each digit, in multiples of what a digit cannot hold, and in units."""
    # The largest may be above one by a rounding error: XLA computes a number again where it needs it, in another way.
    bits, rest = BITS[x.dtype], jnp.where(x < jnp.inf, jnp.minimum(x, 1.0), 0.0)
    digits = []
    for _ in range(DIGITS[x.dtype]):
        rest = rest * 2.0**bits
        digits.append(jnp.floor(rest))
        rest = rest - digits[-1]
    whole = x.shape[0] - x.shape[0] % 2**bits
    blocks = _added([digit[:whole].reshape(-1, 2**bits) for digit in digits])
    tails = _added([digit[None, whole:] for digit in digits])
    integers = jnp.uint32 if bits < 16 else jnp.int64
    sums = [jnp.concatenate(pair).astype(integers) for pair in zip(blocks, tails, strict=True)]
    return [(jnp.sum(y >> bits), jnp.sum(y & (2**bits - 1))) for y in sums]


def _added(digits: list[Any]) -> list[Any]:
    """Return the sums of all digits over the last axis: in one loop, XLA would make one for each. Floats are faster."""
    zero = jnp.zeros((), digits[0].dtype)
    return jax.lax.reduce(digits, [zero] * len(digits), lambda x, y: [a + b for a, b in zip(x, y, strict=True)], (1,))
