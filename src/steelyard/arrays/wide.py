"""Unsigned integers of 64 bits as pairs of 32-bit words, in JAX, which has no wider ones unless x64 is on."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# XLA's own prefix sum is slow on a CPU: longer ones are sums over so few neighbours, and prefix sums of these.
SHORT, NEIGHBOURS = 2**11, 8


class Wide(NamedTuple):
    """The integers high * 2^32 + low, for arrays of words."""

    high: Any
    low: Any

    @classmethod
    def of(cls, number: int) -> "Wide":
        """Return a Python integer of at most 64 bits."""
        return cls(jnp.uint32(number >> 32), jnp.uint32(number & 0xFFFFFFFF))

    def last(self) -> "Wide":
        """Return the last number."""
        return Wide(self.high[-1], self.low[-1])

    def of_slots(self, slots: Any) -> "Wide":
        """Return the number of each slot; of one number, that for all of them."""
        return self.last() if self.low.shape[0] == 1 else Wide(self.high[slots], self.low[slots])

    def rows(self, part: slice) -> "Wide":
        """Return some of the numbers."""
        return Wide(self.high[part], self.low[part])

    def expanded(self, axis: int) -> "Wide":
        """Return the numbers with an axis of size one."""
        return Wide(jnp.expand_dims(self.high, axis), jnp.expand_dims(self.low, axis))

    def shifted(self, bits: int) -> "Wide":
        """Return the numbers times 2^bits, which may be negative, without what does not fit."""
        if bits <= -32:
            return Wide(jnp.zeros_like(self.high), self.high >> jnp.uint32(-32 - bits))
        if bits < 0:
            right, left = jnp.uint32(-bits), jnp.uint32(32 + bits)
            return Wide(self.high >> right, (self.high << left) | (self.low >> right))
        if bits >= 32:
            return Wide(self.low << jnp.uint32(bits - 32), jnp.zeros_like(self.low))
        if bits == 0:
            return self
        left, right = jnp.uint32(bits), jnp.uint32(32 - bits)
        return Wide((self.high << left) | (self.low >> right), self.low << left)


def add(x: Wide, y: Wide) -> Wide:
    """Return x + y, modulo 2^64."""
    low = x.low + y.low
    return Wide(x.high + y.high + _carry(low, y.low), low)


def subtract(x: Wide, y: Wide) -> Wide:
    """Return x - y, modulo 2^64."""
    return Wide(x.high - y.high - (x.low < y.low).astype(jnp.uint32), x.low - y.low)


def less(x: Wide, y: Wide) -> Any:
    """Tell where x < y."""
    return (x.high < y.high) | ((x.high == y.high) & (x.low < y.low))


def _carry(total: Any, term: Any) -> Any:
    """Return the carry of a sum of two words: it wraps where it is smaller than a term."""
    return (total < term).astype(jnp.uint32)


def product(x: Any, y: Any) -> Wide:
    """Return the product of two words."""
    half, mask = jnp.uint32(16), jnp.uint32(0xFFFF)
    x1, x0, y1, y0 = x >> half, x & mask, y >> half, y & mask
    middle = x0 * y1 + (x0 * y0 >> half)
    other = x1 * y0 + (middle & mask)
    return Wide(x1 * y1 + (middle >> half) + (other >> half), x * y)


def high_product(x: Wide, y: Wide) -> Wide:
    """Return floor(x y / 2^64)."""
    zero = jnp.uint32(0)
    inner = add(product(x.high, y.low), Wide(zero, product(x.low, y.low).high))
    other = add(product(x.low, y.high), Wide(zero, inner.low))
    outer = add(product(x.high, y.high), Wide(zero, inner.high))
    return add(outer, Wide(zero, other.high))


def ratio(x: Wide, y: Wide) -> Wide:
    """Return ceil(x 2^64 / y), for x < y < 2^63: then `high_product(y, ratio(x, y))` is x.

    Long division in digits of 16 bits. Single precision guesses a digit, or the one below it.
    """
    digits = []
    for _ in range(4):
        guess = _float(x) / _float(y) * 2.0**16
        digit = jnp.clip(guess - 2.0**-5, 0.0, 2.0**16 - 1).astype(jnp.uint32)
        part = product(digit, y.low)
        x = subtract(x.shifted(16), Wide(part.high + digit * y.high, part.low))
        small = less(x, y)
        x = jax.tree.map(lambda a, b: jnp.where(small, a, b), x, subtract(x, y))  # noqa: B023
        digits.append(digit + (~small).astype(jnp.uint32))
    half = jnp.uint32(16)
    quotient = Wide((digits[0] << half) + digits[1], (digits[2] << half) + digits[3])
    return add(quotient, Wide(jnp.uint32(0), ((x.high | x.low) != 0).astype(jnp.uint32)))


def _float(x: Wide) -> Any:
    return x.high.astype(jnp.float32) * 2.0**32 + x.low.astype(jnp.float32)


def prefix_sums(x: Any) -> Any:
    """Return x_0, x_0 + x_1, ..., of words or, modulo 2^64, of `Wide` numbers."""
    plus = add if isinstance(x, Wide) else jnp.add
    size = jax.tree.leaves(x)[0].shape[0]
    if size > SHORT:
        return _by_neighbours(plus, x, size)
    if not isinstance(x, Wide):
        return jax.lax.cumsum(x)
    low = jax.lax.cumsum(x.low)
    return Wide(jax.lax.cumsum(x.high + _carry(low, x.low)), low)


def _by_neighbours(plus: Any, x: Any, size: int) -> Any:
    rows = -(-size // NEIGHBOURS)
    x = jax.tree.map(lambda y: jnp.pad(y, (0, rows * NEIGHBOURS - size)).reshape(rows, NEIGHBOURS), x)
    columns = [jax.tree.map(lambda y: y[:, n], x) for n in range(NEIGHBOURS)]  # noqa: B023
    inside = list(itertools.accumulate(columns, plus))
    before = jax.tree.map(lambda y: jnp.pad(y, (1, 0)), prefix_sums(jax.tree.map(lambda y: y[:-1], inside[-1])))
    sums = [plus(before, y) for y in inside]
    return jax.tree.map(lambda *ys: jnp.stack(ys, axis=1).reshape(-1)[:size], *sums)
