"""One key per particle at the price of one key for all of them.

Every particle must draw on its own, with whatever distribution its program names. Folding a particle's index into the
key costs a hash per particle on top of the draw. Here the index is a part of the key instead, and enters as the high
word of Threefry's counter when the draw is made. Levels and sites are added to the words of the key: Threefry is as
good for keys that are counted as for keys at random (Salmon et al., 2011). The hash is also written out flat, which
lets XLA fuse it with the arithmetic around it: a draw takes less than half the time of
`jax.random.normal(key, (L,))` on a CPU.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.random import define_prng_impl, threefry_prng_impl
from jaxtyping import Bool, Int, UInt32
from jaxtyping import Key as KeyArray

from steelyard.types import Key

# A particle that draws so many numbers at once has them computed again where they are used, to save memory.
WIDE = 16

# What is known of a key: its first 32 bits, or its first standard normal number.
Kind: TypeAlias = Literal["bits", "normal"]

# A counter that no other use of a key has: JAX counts what it draws, and what it splits, from (0, 0).
_APART = (0x9E3779B9, 0x85EBCA6B)

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class First(NamedTuple):
    """The first number of a key, as a word of 32 bits."""

    kind: Kind
    word: UInt32[Array, ""]


def scattered(key: Key) -> UInt32[Array, "2"]:
    """Return two words that are far from those of any other key, so that `particle_key` may count from them.

    One call of Threefry. Its key is the first two words of this one. Its counter is the others: the number of a
    particle, or the other half of a key of JAX's `rbg`.
    """
    words = jax.random.key_data(key).ravel()
    if jax.random.key_impl(key) in _WITH_FIRST.values():
        words = words[:3]
    # A barrier: XLA would else compute them again in every draw.
    return jax.lax.optimization_barrier(_hashed(words))


@partial(jax.jit, inline=True)
def _hashed(words: UInt32[Array, " n"]) -> UInt32[Array, "2"]:
    """Return the hash of a key. Those of JAX have two or four words; more would take a call for each further pair."""
    hashed, counters = words[:2], jnp.concatenate([words[2:], jnp.array(_APART, jnp.uint32)])
    for i in range(0, max(words.size - 2, 1), 2):
        high, low = _threefry(jnp.append(hashed, counters[i]), counters[i + 1 : i + 2])
        hashed = jnp.concatenate([high, low])
    return hashed


def particle_key(
    words: UInt32[Array, "2"],
    particle: Int[Array, ""] | int,
    level: Int[Array, ""] | int = 0,
    site: Int[Array, ""] | int = 0,
    first: First | None = None,
) -> Key:
    """Return the key with which one particle draws at one site of one level.

    Args:
        words: a key that all particles, levels and sites share, `scattered`.
        particle: the number of the particle; under `vmap`, what varies.
        level: the number of the program that runs.
        site: the number of the draw in it.
        first: the first number of this key, if it was computed before. The key is then faster, and draws the same.

    Returns:
        A scalar key, for any function of `jax.random`.
    """
    high, low, index = (jnp.asarray(x, jnp.uint32) for x in (level, site, particle))
    key = [words[0] + high, words[1] + low, index]
    if first is None:
        return jax.random.wrap_key_data(jnp.stack(key), impl=_PARTICLE)
    return jax.random.wrap_key_data(jnp.stack([*key, first.word]), impl=_WITH_FIRST[first.kind])


def first_of(kind: Kind, key: Key) -> UInt32[Array, ""]:
    """Return the first number of the key of a particle, for `particle_key`."""
    return _FIRST[kind](jax.random.key_data(key))


def keys_of_rows(key: Key, rows: int) -> KeyArray[Array, " rows"]:
    """Return a key for each row of a minibatch: `jax.random.split`, with the hash written out flat."""
    return jax.random.split(particle_key(scattered(key), 0), rows)


def normal(key: Key, shape: tuple[int, ...]) -> Array:
    """Draw `jax.random.normal(key, shape)`; with the key of a particle, a few numbers are computed only once."""
    kind = jax.random.key_impl(key)
    if kind == _WITH_FIRST["normal"] and math.prod(shape) == 1 and jnp.result_type(float) == jnp.float32:
        return jax.lax.bitcast_convert_type(
            _first_that_is_known("normal", jax.random.key_data(key)), jnp.float32
        ).reshape(shape)
    if kind != _PARTICLE or math.prod(shape) >= WIDE or jnp.result_type(float) != jnp.float32:
        return jax.random.normal(key, shape)
    words = jax.random.key_data(key)
    drawn = jax.random.normal(jax.random.wrap_key_data(words, impl=_RECOMPUTED), shape)
    bits = jax.lax.bitcast_convert_type(drawn, jnp.uint32)
    return jax.lax.bitcast_convert_type(_computed_once(words, bits), drawn.dtype)


def computed_once(key: Key, flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Return a flag of a particle, which XLA would else compute again in everything that uses it."""
    return _computed_once(jax.random.key_data(key), flag.astype(jnp.uint32)) != 0


def threefry_key(key: Key) -> Key:
    """Return a key of JAX's own implementation of Threefry, from that of a particle."""
    words = _fold_in(jax.random.key_data(key)[:3], 0)[:2]
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def has_words_anywhere(key: Key, count: int) -> bool:
    """Tell whether any of so many words that a key draws can be had without the others, by `word_at`."""
    return jax.random.key_impl(key) == _PARTICLE and count >= WIDE


def word_at(key: Key, places: UInt32[Array, " n"]) -> UInt32[Array, " n"]:
    """Return the words that `jax.random.bits(key, (count,), jnp.uint32)` has at some places."""
    x0, x1 = _threefry(jax.random.key_data(key), places)
    return x0 ^ x1


# Outside of `jit` it is one compiled call, and not eighty operations; inside, it is as if it were written there.
@partial(jax.jit, inline=True)
def _threefry(key: UInt32[Array, "3"], low: UInt32[Array, " n"]) -> tuple[Array, Array]:
    """Threefry-2x32 (Salmon et al., 2011) with the particle as the high word of the counter."""
    k0, k1, high = key[0], key[1], key[2]
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = jnp.broadcast_to(high + k0, low.shape), low + k1
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << jnp.uint32(rotation)) | (x1 >> jnp.uint32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    bits = _recomputed_bits(key, bit_width, shape)
    return _computed_once(key, bits) if bit_width == 32 and bits.size < WIDE else bits


def _recomputed_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    x0, x1 = _threefry(key, jax.lax.iota(jnp.uint32, math.prod(shape)))
    if bit_width == 64:
        bits = (x0.astype(jnp.uint64) << jnp.uint64(32)) | x1.astype(jnp.uint64)
    else:
        bits = (x0 ^ x1).astype(f"uint{bit_width}")
    return bits.reshape(shape)


def _computed_once(key: Array, bits: Array) -> Array:
    """Return words of 32 bits, which XLA on a CPU would else compute again in everything that uses them.

    XLA stores only results that it considers expensive. A remainder by a run-time divisor counts as expensive. This one
    changes a single value of 2^32, and no finite float.
    """
    divisor = jnp.uint32(0xFFFFFFFF) - (key[0] == key[1]).astype(jnp.uint32)

    def remainder(bits: Array, divisor: Array) -> Array:
        return jax.lax.rem(bits, jnp.broadcast_to(divisor, bits.shape))

    return jax.lax.platform_dependent(bits, divisor, cpu=remainder, default=lambda bits, divisor: bits)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    x0, x1 = _threefry(key, jax.lax.iota(jnp.uint32, math.prod(shape)))
    return jnp.stack([x0, x1, jnp.zeros_like(x0)], axis=-1).reshape(*shape, 3)


def _fold_in(key: Array, data: Any) -> Array:
    x0, x1 = _threefry(key, jnp.asarray(data, jnp.uint32)[None])
    return jnp.stack([x0[0], x1[0], jnp.uint32(0)])


def _seed(seed: Array) -> Array:
    words = jax.random.key_data(jax.random.key(seed, impl=threefry_prng_impl))
    return jnp.append(words, jnp.uint32(0))


def _implementation(name: str, tag: str, random_bits: Callable[..., Array]) -> Any:
    return define_prng_impl(
        key_shape=(3,), seed=_seed, split=_split, random_bits=random_bits, fold_in=_fold_in, name=name, tag=tag
    )


_PARTICLE = _implementation("particle", "pt", _random_bits)
_RECOMPUTED = _implementation("particle, recomputed", "pr", _recomputed_bits)


def _first_bits(words: Array) -> Array:
    return _random_bits(words[:3], 32, ())


def _first_normal(words: Array) -> Array:
    drawn = normal(jax.random.wrap_key_data(words[:3], impl=_PARTICLE), ())
    return jax.lax.bitcast_convert_type(drawn.astype(jnp.float32), jnp.uint32)


_FIRST: dict[Kind, Callable[[Array], Array]] = {"bits": _first_bits, "normal": _first_normal}
# As many draws have the same equations, these are traced once.
_DRAWN = {kind: jax.jit(first) for kind, first in _FIRST.items()}


def _bits_that_are_known(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    if bit_width == 32 and math.prod(shape) == 1:
        return _first_that_is_known("bits", key).reshape(shape)
    return _random_bits(key[:3], bit_width, shape)


def _first_that_is_known(kind: Kind, key: Array) -> Array:
    """Return the first number of a key that has it as a fourth word.

    That is for XLA on a CPU, which is slow where many numbers are drawn each by itself. Elsewhere it is drawn where it
    is used, and what was computed before is never read.
    """
    return jax.lax.platform_dependent(key, cpu=lambda key: key[3], default=_DRAWN[kind])


def _with_first(kind: Kind, tag: str, random_bits: Callable[..., Array]) -> Any:
    """Return an implementation whose keys have their first number as a fourth word."""

    def completed(keys: Array) -> Array:
        first = jnp.vectorize(_FIRST[kind], signature="(n)->()")(keys)
        return jnp.concatenate([keys, first[..., None]], axis=-1)

    return define_prng_impl(
        key_shape=(4,),
        seed=lambda seed: completed(_seed(seed)),
        split=lambda key, shape: completed(_split(key[:3], shape)),
        random_bits=random_bits,
        fold_in=lambda key, data: completed(_fold_in(key[:3], data)),
        name=f"particle, with its first {kind}",
        tag=tag,
    )


_WITH_FIRST: dict[Kind, Any] = {
    "bits": _with_first("bits", "pb", _bits_that_are_known),
    "normal": _with_first("normal", "pn", lambda key, *options: _random_bits(key[:3], *options)),
}
