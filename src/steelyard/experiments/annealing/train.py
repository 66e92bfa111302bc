"""Training: all seeds of a cell in one compiled program."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

import steelyard as sy
from steelyard.experiments.annealing.cores import mesh_of, options
from steelyard.experiments.annealing.methods import Method, program
from steelyard.experiments.annealing.model import Sampler
from steelyard.experiments.annealing.settings import Cell

WINDOW, AHEAD = 100, 4
# For what runs once: a compiler that takes its time would take ten times longer than the program.
HASTE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class History(NamedTuple):
    """Averages over every hundred steps of training, for each seed; the last entry may be of fewer."""

    loss: Float[np.ndarray, "seeds windows"]
    log_z: Float[np.ndarray, "seeds windows"]
    ess: Float[np.ndarray, "seeds windows"]
    skipped: Float[np.ndarray, "seeds windows"]


class Pace(NamedTuple):
    """Whether the schedule learns, and how fast everything does."""

    learned: Bool[Array, ""]
    learning_rate: Float[Array, ""]
    decays: Bool[Array, ""]
    steps: Int[Array, ""]

    def rate(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Return the learning rate of a step: constant, or half a wave of a cosine."""
        left = 0.5 + 0.5 * jnp.cos(jnp.pi * step / self.steps)
        return self.learning_rate * jnp.where(self.decays, left, 1.0)


class Run(NamedTuple):
    """All seeds on their way: what each has learned so far, and its key."""

    learner: sy.Learner
    keys: PRNGKeyArray


def train(cell: Cell, report: Callable[[int, History], None] = lambda steps, history: None) -> tuple[Sampler, History]:
    """Train the samplers of a cell.

    Args:
        cell: the settings.
        report: called from time to time, with the number of steps so far and the history.

    Returns:
        The samplers, stacked along the first axis, with parameters averaged over the last steps, and the history of
        training.
    """
    runs, advance, pace = _set_up(cell)
    running, windows = deque(), []
    samplers = deque(maxlen=max(1, round(cell.average * cell.steps / WINDOW)))

    def look() -> None:
        windows.append(np.asarray(running.popleft()))
        report(min(len(windows) * WINDOW, cell.steps), _history(windows))

    for done in range(0, cell.steps, WINDOW):
        runs, window = advance(runs, jnp.asarray(min(WINDOW, cell.steps - done)), pace)
        running.append(window)
        samplers.append(runs.learner.parameters)
        # Devices that have work to go on with wait neither for each other nor for the report.
        if len(running) > AHEAD:
            look()
    while running:
        look()
    return jax.tree.map(lambda *x: jnp.asarray(np.mean(x, axis=0)), *samplers), _history(windows)


def prepare(cell: Cell) -> None:
    """Compile what `train` will run for a cell, by running it for no steps."""
    runs, advance, pace = _set_up(cell)
    advance(runs, jnp.asarray(0), pace)


def _set_up(cell: Cell) -> tuple[Run, Callable[..., Any], Pace]:
    method = cell.kind
    # What can be told to a compiled program is no part of it: methods that differ in nothing else are compiled once.
    alike = replace(method, name="", learned=True, learning_rate=0.0, decays=False)
    pace = Pace(*map(jnp.asarray, (method.learned, method.learning_rate, method.decays, cell.steps)))
    runs = _start(alike, cell.particles, cell.densities)(jnp.arange(cell.seeds), pace)
    return runs, _advance(alike, cell.particles), pace


def start(seed: Any, densities: int) -> Sampler:
    """Return the sampler of a seed before training."""
    return Sampler.start(jax.random.key(seed), densities)


def shapes(densities: int, seeds: int) -> Sampler:
    """Return the shapes of the samplers of all seeds, stacked along the first axis."""
    return jax.eval_shape(jax.vmap(lambda seed: start(seed, densities)), jnp.arange(seeds))


def _history(windows: Sequence[np.ndarray]) -> History:
    return History(*np.stack(windows, axis=-1).transpose(1, 0, 2))


@lru_cache
def _start(method: Method, particles: int, densities: int) -> Callable[[Any, Pace], Run]:
    """Return a compiled function of the seeds."""

    def run(seeds: Any, pace: Pace) -> Run:
        samplers = jax.vmap(lambda seed: start(seed, densities))(seeds)
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), 1))(seeds)
        # Where arrays are is a part of their type: steps would be compiled once more for keys that are elsewhere.
        keys = jax.lax.with_sharding_constraint(keys, NamedSharding(mesh_of(len(seeds)), PartitionSpec("seeds")))
        return Run(_trainer(method, samplers, particles, pace).init(), keys)

    return jax.jit(run, compiler_options=HASTE)


def _trainer(method: Method, samplers: Sampler, particles: int, pace: Pace) -> sy.Trainer:
    """Return a step of training for all seeds; of a schedule that is not learned, the gradient is zero."""

    def built(sampler: Sampler) -> Any:
        # Written out, the levels need no memory that is cleared in every step: a tenth faster than a loop.
        return program(method, sampler, resampling=method.resampling, unroll=len(sampler.logits) + 1)

    def learning(gradient: Any, _: Any) -> Any:
        return gradient._replace(logits=jnp.where(pace.learned, gradient.logits, 0.0))

    optimizer = optax.chain(
        optax.stateless(learning),
        optax.scale_by_adam(),
        optax.scale_by_schedule(lambda step: -pace.rate(jnp.asarray(step))),
    )
    mesh = mesh_of(len(samplers.logits))
    return sy.trainer(built, samplers, optimizer=optimizer, particles=particles, mesh=mesh)


@lru_cache
def _advance(method: Method, particles: int) -> Callable[..., Any]:
    """Return a compiled function that trains every seed for a number of steps, and averages what it sees."""

    def windows(step: Callable[..., Any], learner: sy.Learner, key: PRNGKeyArray, _: None, count: Any) -> Any:
        def add(_: Any, carry: tuple[sy.Learner, Float[Array, "4"]]) -> tuple[sy.Learner, Float[Array, "4"]]:
            learner, now = step(carry[0], key)
            return learner, carry[1] + jnp.stack([now.loss, now.log_z, now.ess, now.skipped.astype(float)])

        learner, total = jax.lax.fori_loop(0, count, add, (learner, jnp.zeros(4)))
        return learner, total / count

    def advance(run: Run, count: Any, pace: Pace) -> tuple[Run, Float[Array, "seeds 4"]]:
        trainer = _trainer(method, run.learner.parameters, particles, pace)
        learner, window = trainer.loop(windows)(run.learner, run.keys, None, count)
        return Run(learner, run.keys), window

    return jax.jit(advance, compiler_options=options())
