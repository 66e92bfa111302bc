"""Integers of 64 bits in two words, against Python's integers."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.arrays import wide
from steelyard.arrays.wide import Wide

EDGES = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
RANDOM = random.Random(0)
SOME = [RANDOM.getrandbits(RANDOM.randint(1, 64)) for _ in range(500)]
PAIRS = [(x, y) for x in EDGES for y in EDGES] + list(zip(SOME, reversed(SOME), strict=True))


def words(numbers: list[int]) -> Wide:
    return Wide(*(jnp.asarray(x, jnp.uint32) for x in ([n >> 32 for n in numbers], [n % 2**32 for n in numbers])))


def integers(x: Wide) -> list[int]:
    return [(int(high) << 32) + int(low) for high, low in zip(*map(np.ravel, x), strict=True)]


def test_arithmetic() -> None:
    x, y = (words([pair[side] for pair in PAIRS]) for side in (0, 1))
    assert integers(wide.add(x, y)) == [(a + b) % 2**64 for a, b in PAIRS]
    assert integers(wide.subtract(x, y)) == [(a - b) % 2**64 for a, b in PAIRS]
    assert integers(wide.high_product(x, y)) == [a * b >> 64 for a, b in PAIRS]
    assert integers(wide.product(x.low, y.low)) == [(a % 2**32) * (b % 2**32) for a, b in PAIRS]
    assert np.asarray(wide.less(x, y)).tolist() == [a < b for a, b in PAIRS]
    assert integers(Wide.of(2**40 + 3)) == [2**40 + 3]


@pytest.mark.parametrize("bits", [-63, -33, -32, -31, -1, 0, 1, 31, 32, 33, 63])
def test_shifts(bits: int) -> None:
    found = integers(words(EDGES + SOME).shifted(bits))
    assert found == [(x << bits if bits >= 0 else x >> -bits) % 2**64 for x in EDGES + SOME]


def test_ratios_are_rounded_up() -> None:
    divisors = [2**63 - 1, 2**62, 3 * 2**60 + 1, 2, 3, 2**32] + [max(2, x >> 1) for x in SOME]
    dividends = [y - 1 for y in divisors[:6]] + [RANDOM.randrange(y) for y in divisors[6:]]
    found = jax.jit(wide.ratio)(words(dividends), words(divisors))
    assert integers(found) == [-(-(x << 64) // y) for x, y in zip(dividends, divisors, strict=True)]
    assert integers(wide.high_product(words(divisors), found)) == dividends


@pytest.mark.parametrize("size", [1, 7, wide.SHORT, wide.SHORT + 1, 50_001])
def test_prefix_sums_carry(size: int) -> None:
    numbers = [RANDOM.getrandbits(46) for _ in range(size)]
    sums = np.cumsum(np.array(numbers, np.uint64)).tolist()
    assert integers(jax.jit(wide.prefix_sums)(words(numbers))) == sums
    plain = jnp.asarray([n % 1000 for n in numbers], jnp.int32)
    np.testing.assert_array_equal(jax.jit(wide.prefix_sums)(plain), np.cumsum(plain))
