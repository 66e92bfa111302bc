"""A bootstrap filter of 50 steps, unrolled: stochastic volatility, 10,000 particles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.measure import Row, compare

PARTICLES, STEPS = 10_000, 50
MEAN, PERSISTENCE, VOLATILITY = -0.5, 0.95, 0.3


def start(s: sy.State, ys: Any) -> Any:
    return s.sample("x0", dist.Normal(MEAN, 1.0)), ys


def step(t: int) -> Any:
    def transition(s: sy.State, value: Any) -> Any:
        x, ys = value
        x = s.sample(f"x{t}", dist.Normal(MEAN + PERSISTENCE * (x - MEAN), VOLATILITY))
        s.observe(f"y{t}", dist.Normal(0.0, jnp.exp(0.5 * x)), ys[t - 1])
        return x, ys

    return transition


def steelyard(key: Any, ys: Any) -> Any:
    q: Any = start
    for t in range(1, STEPS + 1):
        q = sy.resample(sy.compose(step(t), q))
    out = sy.evaluate(q, key, ys, particles=PARTICLES)
    return out.log_z, jnp.mean(out.trace[f"x{STEPS}"])


def by_hand(key: Any, ys: Any) -> Any:
    key, k0 = jax.random.split(key)
    x = MEAN + jax.random.normal(k0, (PARTICLES,))
    log_z = jnp.zeros(())
    for t in range(STEPS):
        key, k1, k2 = jax.random.split(key, 3)
        x = MEAN + PERSISTENCE * (x - MEAN) + VOLATILITY * jax.random.normal(k1, (PARTICLES,))
        scale = jnp.exp(0.5 * x)
        log_weight = -0.5 * (ys[t] / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)
        log_z += jax.nn.logsumexp(log_weight) - jnp.log(PARTICLES)
        cdf = jnp.cumsum(jax.nn.softmax(log_weight))
        positions = (jnp.arange(PARTICLES) + jax.random.uniform(k2)) / PARTICLES
        x = x[jnp.clip(jnp.searchsorted(cdf, positions), 0, PARTICLES - 1)]
    return log_z, jnp.mean(x)


def run() -> list[Row]:
    """Compare with the same algorithm in plain JAX."""
    ys = jnp.exp(-0.25) * jax.random.normal(jax.random.key(2), (STEPS,))
    row = compare(
        f"bootstrap filter, {STEPS} steps unrolled, {PARTICLES:,} particles",
        {"steelyard": steelyard, "hand-written JAX": by_hand},
        (jax.random.key(1), ys),
        "hand-written JAX",
    )
    return [row]
