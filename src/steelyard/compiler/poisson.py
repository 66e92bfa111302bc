"""Draws from a Poisson distribution, for all numbers at once and with any key.

JAX's own sampler accepts its own implementation of Threefry only, and splits the key again for every event.
"""

from typing import Any

import jax
import jax.numpy as jnp

from steelyard.arrays.manual_axes import varying_like_results
from steelyard.types import Key

# Below, the number of events is searched from zero. The constants of the rejection hold from here on.
SMALL = 10.0

# From here on, factorials are replaced by Stirling's series.
LARGE = 100.0


def poisson(key: Key, rate: Any) -> Any:
    """Draw from Poisson(rate); -1, which is no number of events, where the rate is negative or NaN.

    Numbers that no integer holds become the largest one whose successor is an integer, which densities need.
    """
    most = jnp.iinfo(jnp.result_type(int)).max
    small, large = (rate >= 0) & (rate < SMALL), (rate >= SMALL) & (rate < most)
    few = _by_inversion(key, jnp.where(small, rate, 0.0))
    many = _by_rejection(key, large, jnp.where(large, rate, SMALL))
    drawn = jnp.where(small, few, jnp.where(large, many, rate))
    return jnp.where(drawn >= most, most - 1, jnp.where(drawn >= 0, drawn, -1.0).astype(int))


def _by_inversion(key: Key, rate: Any) -> Any:
    """Return the number k with P(X > k) <= v < P(X >= k), for a random number v that is fine-grained near zero.

    Probabilities are counted from the tail, so that rare events of a small rate are as rare as they should be.
    """
    coarse, fine = _two_uniforms(key, 0, rate)
    eps = jnp.finfo(rate.dtype).eps
    v = coarse + fine * 2.0 ** -_bits(rate)
    above = -jnp.expm1(-rate)
    # Smaller ones change nothing any more: what is left is rounding.
    least = above * eps / 8

    def missing(state: Any) -> Any:
        _, mass, tail = state
        return jnp.any((v < tail) & (mass > least))

    def count(state: Any) -> Any:
        k, mass, tail = state
        more = (v < tail) & (mass > least)
        k = jnp.where(more, k + 1, k)
        mass = jnp.where(more, mass * rate / k, mass)
        return k, mass, jnp.where(more, tail - mass, tail)

    start = varying_like_results(count, (jnp.zeros_like(rate), jnp.exp(-rate), above))
    return jax.lax.while_loop(missing, count, start)[0]


def _by_rejection(key: Key, wanted: Any, rate: Any) -> Any:
    """Draw by transformed rejection (PTRS; Hörmann, 1993)."""
    b = 0.931 + 2.53 * jnp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def missing(state: Any) -> Any:
        return jnp.any(wanted & (state[1] < 0))

    def propose(state: Any) -> Any:
        attempt, drawn = state
        u, v = _two_uniforms(key, attempt, rate)
        u = u - 0.5
        distance = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / distance + b) * u + rate + 0.43)
        bound = jnp.log(v * inverse_alpha / (a / distance**2 + b))
        # The first condition implies the second, which costs digits.
        accepted = (distance >= 0.07) & (v <= v_r) | (k >= 0) & (bound <= _log_mass(k, rate))
        return attempt + 1, jnp.where((drawn < 0) & accepted, k, drawn)

    start = varying_like_results(propose, (1, jnp.full_like(rate, -1.0)))
    return jax.lax.while_loop(missing, propose, start)[1]


def _two_uniforms(key: Key, number: Any, like: Any) -> tuple[Any, Any]:
    """Return two numbers in [0, 1) in place of each of an array, which the words of a new key are made of.

    Keys cost one hash. Numbers that are drawn with them would cost another one each.
    """
    key = jax.random.fold_in(key, number)
    words = jax.random.key_data(jax.random.split(key, like.shape) if like.shape else key)
    bits = _bits(like)
    uniforms = (words >> jnp.uint32(32 - bits)).astype(like.dtype) * 2.0**-bits
    return uniforms[..., 0], uniforms[..., 1]


def _bits(like: Any) -> int:
    """Return how many bits of a word a number holds: more would round up to one."""
    return min(32, jnp.finfo(like.dtype).nmant + 1)


def _log_mass(k: Any, rate: Any) -> Any:
    """Return k log(rate) - rate - log(k!), which for large rates is a small difference of large numbers."""
    direct = k * jnp.log(rate) - rate - jax.lax.lgamma(k + 1)
    x = (k - rate) / rate
    near = sum((-x) ** n / (n * (n - 1)) for n in range(2, 9))
    deviance = jnp.where(jnp.abs(x) < 0.1, near, (1 + x) * jnp.log1p(x) - x)
    by_series = -rate * deviance - 0.5 * jnp.log(2 * jnp.pi * k) - 1 / (12 * k) + 1 / (360 * k**3)
    return jnp.where(rate < LARGE, direct, jnp.where(k >= 1, by_series, -jnp.inf))
