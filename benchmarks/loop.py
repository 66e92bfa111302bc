"""10,000 small training steps: `sy.train` next to one hand-written `lax.scan` over them."""

import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import optax

import steelyard as sy
from benchmarks.measure import Cost, Row

STEPS, FEW, PARTICLES, REPEATS = 10_000, 100, 1000, 5
OPTIMIZER = optax.adam(1e-3)
START = {"location": jnp.zeros(8), "log_scale": jnp.zeros(8)}
TARGET = jnp.linspace(-1.0, 2.0, 8)


def program(guide: Any) -> Any:
    def model(s: sy.State) -> None:
        s.sample("z", dist.Normal(TARGET, 0.5))

    def proposal(s: sy.State) -> None:
        s.sample("z", dist.Normal(guide["location"], jnp.exp(guide["log_scale"])))

    return sy.algorithms.svi(model, proposal)


def by_sy_train(key: Any, steps: int) -> Any:
    return sy.train(
        program, START, optimizer=OPTIMIZER, steps=steps, key=key, particles=PARTICLES, progress=False
    ).models


def by_hand(key: Any, steps: int) -> Any:
    """The same step in a loop of one's own."""

    def loss(guide: Any, key: Any) -> Any:
        out = sy.evaluate(program(guide), key, particles=PARTICLES)
        return out.loss, (out.log_z, out.ess)

    def step(carry: Any, t: Any) -> Any:
        guide, state = carry
        value, gradients = jax.value_and_grad(loss, has_aux=True)(guide, jax.random.fold_in(key, t))
        updates, state = OPTIMIZER.update(gradients, state, guide)
        return (optax.apply_updates(guide, updates), state), (value, optax.tree.norm(gradients))

    return jax.jit(lambda: jax.lax.scan(step, (START, OPTIMIZER.init(START)), jnp.arange(steps)))()


def run() -> list[Row]:
    """Time whole runs of many and of few steps; the difference is the steps, without compilation."""
    contenders = {"sy.train": by_sy_train, "hand-written lax.scan": by_hand}
    times: dict[str, dict[int, list[float]]] = {name: {FEW: [], FEW + STEPS: []} for name in contenders}
    for repeat in range(REPEATS):
        for name, contender in contenders.items():
            for steps in times[name]:
                jax.clear_caches()
                start = time.perf_counter()
                jax.block_until_ready(contender(jax.random.key(repeat), steps))
                times[name][steps].append(time.perf_counter() - start)
    few = {name: statistics.median(runs[FEW]) for name, runs in times.items()}
    many = {name: statistics.median(runs[FEW + STEPS]) for name, runs in times.items()}
    costs = {name: Cost((many[name] - few[name]) / STEPS, few[name]) for name in contenders}
    return [Row(f"{STEPS:,} small training steps", costs, "hand-written lax.scan")]
