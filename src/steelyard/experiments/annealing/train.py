"""Training: all seeds of a cell in one compiled program."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

import steelyard as sy
from steelyard.experiments.annealing.methods import Method, program
from steelyard.experiments.annealing.model import Sampler
from steelyard.experiments.annealing.parallel import over_seeds
from steelyard.experiments.annealing.settings import Cell

WINDOW, AHEAD = 100, 4
ADAM = optax.scale_by_adam()
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
    """A seed on its way: the parameters, the optimizer's state, the key, and the number of steps so far."""

    sampler: Sampler
    state: Any
    key: PRNGKeyArray
    step: Int[Array, ""]


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
        samplers.append(runs.sampler)
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
    runs = _start(cell.densities)(jnp.arange(cell.seeds))
    return runs, _advance(alike, cell.particles, cell.seeds), pace


def start(seed: Any, densities: int) -> Sampler:
    """Return the sampler of a seed before training."""
    return Sampler.start(jax.random.key(seed), densities)


def shapes(densities: int, seeds: int) -> Sampler:
    """Return the shapes of the samplers of all seeds, stacked along the first axis."""
    return jax.eval_shape(jax.vmap(lambda seed: start(seed, densities)), jnp.arange(seeds))


def _history(windows: Sequence[np.ndarray]) -> History:
    return History(*np.stack(windows, axis=-1).transpose(1, 0, 2))


@lru_cache
def _start(densities: int) -> Callable[[Any], Run]:
    """Return a compiled function of the seeds."""

    def run(seed: Any) -> Run:
        sampler, key = start(seed, densities), jax.random.fold_in(jax.random.key(seed), 1)
        return Run(sampler, ADAM.init(_parameters(sampler)[0]), key, jnp.zeros((), int))

    return jax.jit(jax.vmap(run), compiler_options=HASTE)


def _parameters(sampler: Sampler) -> tuple[Any, Any]:
    return eqx.partition(sampler, eqx.is_inexact_array)


@lru_cache
def _advance(method: Method, particles: int, seeds: int) -> Callable[..., Any]:
    """Return a compiled function that trains every seed for a number of steps, and averages what it sees."""

    def loss(parameters: Any, rest: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        sampler = eqx.combine(parameters, rest)
        # Written out, the levels need no memory that is cleared in every step: a tenth faster than a loop.
        q = program(method, sampler, resampling=method.resampling, unroll=len(sampler.logits) + 1)
        out = sy.evaluate(q, key, particles=particles)
        return out.loss, (out.log_z, out.ess)

    def update(run: Run, pace: Pace) -> tuple[Run, Float[Array, "4"]]:
        parameters, rest = _parameters(run.sampler)
        key = jax.random.fold_in(run.key, run.step)
        (value, (log_z, ess)), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, rest, key)
        gradient = gradient._replace(logits=jnp.where(pace.learned, gradient.logits, 0.0))
        updates, state = ADAM.update(gradient, run.state, parameters)
        updates = optax.tree.scale(-pace.rate(run.step), updates)
        # A gradient that is not finite would spoil the parameters for good: such a step is left out.
        fine = jnp.isfinite(optax.tree.norm(gradient))
        after, before = (optax.apply_updates(parameters, updates), state), (parameters, run.state)
        parameters, state = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, before)
        sampler: Any = eqx.combine(parameters, rest)
        return Run(sampler, state, run.key, run.step + 1), jnp.stack([value, log_z, ess, 1.0 - fine])

    def advance(run: Run, count: Any, pace: Pace) -> tuple[Run, Float[Array, "4"]]:
        def step(_: Any, carry: tuple[Run, Float[Array, "4"]]) -> tuple[Run, Float[Array, "4"]]:
            run, seen = update(carry[0], pace)
            return run, carry[1] + seen

        run, total = jax.lax.fori_loop(0, count, step, (run, jnp.zeros(4)))
        return run, total / count

    return over_seeds(advance, seeds)
