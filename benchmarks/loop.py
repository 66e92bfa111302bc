"""10,000 small training steps: `sy.train` next to one hand-written `lax.scan` over them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import optax

import steelyard as sy
from benchmarks.measure import Row, compare_training

STEPS, PARTICLES = 10_000, 1000
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
    """Compare whole runs."""
    contenders = {"sy.train": by_sy_train, "hand-written lax.scan": by_hand}
    task = f"{STEPS:,} small training steps"
    return [compare_training(task, contenders, "hand-written lax.scan", steps=STEPS, repeats=11)]
