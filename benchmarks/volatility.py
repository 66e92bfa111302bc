"""A bootstrap filter for stochastic volatility as one loop: 1,000 steps, 100,000 particles.

Next to a hand-written `lax.scan`, and next to the package `particles`, which lives in an environment of its own because
it needs an older NumPy: `make bench` makes it.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.filtering import MEAN, PERSISTENCE, VOLATILITY
from benchmarks.measure import Row, compare

STEPS, PARTICLES, MANY, FEW_STEPS = 1_000, 100_000, 1_000_000, 10
PEER = Path(".venv-particles/bin/python")


def initial(s: sy.State) -> Any:
    s.factor("y", 0.0)
    return s.sample("x", dist.Normal(MEAN, 1.0))


def step(y: Any) -> Any:
    def transition(s: sy.State, x: Any) -> Any:
        x = s.sample("x", dist.Normal(MEAN + PERSISTENCE * (x - MEAN), VOLATILITY))
        s.observe("y", dist.Normal(0.0, jnp.exp(0.5 * x)), y)
        return x

    return transition


def steelyard(particles: int) -> Any:
    def run(key: Any, ys: Any) -> Any:
        out = sy.evaluate(sy.algorithms.smc(step, None, ys, initial=initial), key, particles=particles)
        return out.log_z, out.expect(lambda t: t["x"])

    return run


def by_hand(particles: int) -> Any:
    def run(key: Any, ys: Any) -> Any:
        def body(carry: Any, now: Any) -> Any:
            x, log_weight, log_z = carry
            y, key = now
            k1, k2 = jax.random.split(key)
            log_z += jax.nn.logsumexp(log_weight) - jnp.log(particles)
            cdf = jnp.cumsum(jax.nn.softmax(log_weight))
            positions = (jnp.arange(particles) + jax.random.uniform(k2)) / particles
            x = x[jnp.clip(jnp.searchsorted(cdf, positions), 0, particles - 1)]
            x = MEAN + PERSISTENCE * (x - MEAN) + VOLATILITY * jax.random.normal(k1, (particles,))
            scale = jnp.exp(0.5 * x)
            log_weight = -0.5 * (y / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)
            return (x, log_weight, log_z), None

        key, first = jax.random.split(key)
        start = MEAN + jax.random.normal(first, (particles,)), jnp.zeros(particles), jnp.zeros(())
        (x, log_weight, log_z), _ = jax.lax.scan(body, start, (ys, jax.random.split(key, len(ys))))
        log_z += jax.nn.logsumexp(log_weight) - jnp.log(particles)
        return log_z, jax.nn.softmax(log_weight) @ x

    return run


def run() -> list[Row]:
    """Compare step time, compile time and memory; and memory with many particles."""
    ys = jnp.exp(-0.25) * jax.random.normal(jax.random.key(2), (STEPS,))
    key = jax.random.key(1)

    def row(particles: int, steps: int, peers: dict[str, Callable[[], float]]) -> Row:
        contenders = {"steelyard": steelyard(particles), "hand-written JAX": by_hand(particles)}
        task = f"bootstrap filter, {steps:,} steps, {particles:,} particles ({particles * 4e-6:.1f} MB)"
        return compare(task, contenders, (key, ys[:steps]), "hand-written JAX", peers=peers)

    with installed_peers(np.asarray(ys)) as peers:
        whole = row(PARTICLES, STEPS, peers)
    return [whole, row(MANY, FEW_STEPS, {})]


@contextmanager
def installed_peers(ys: np.ndarray) -> Iterator[dict[str, Callable[[], float]]]:
    """Yield a function that runs the package `particles` on the same data, in a process of its own, if it is there."""
    if not PEER.exists():
        yield {}
        return
    command = [str(PEER), str(Path(__file__).with_name("volatility_peer.py"))]
    task = {"ys": ys.tolist(), "particles": PARTICLES, "model": [MEAN, PERSISTENCE, VOLATILITY]}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def ask(line: str) -> float:
            print(line, file=asks, flush=True)
            return float(answers.readline())

        ask(json.dumps(task))
        yield {"particles": lambda: ask("again")}
