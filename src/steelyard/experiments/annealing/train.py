"""Training: all seeds of a cell in one compiled program."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

import steelyard as sy
from steelyard.experiments.annealing.methods import Method, program
from steelyard.experiments.annealing.model import Sampler
from steelyard.experiments.annealing.parallel import over_seeds
from steelyard.experiments.annealing.settings import Cell

WINDOW = 100
# For what runs once: a compiler that takes its time would take ten times longer than the program.
HASTE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class History(NamedTuple):
    """Averages over every hundred steps of training, for each seed; the last entry may be of fewer."""

    loss: Float[np.ndarray, "seeds windows"]
    log_z: Float[np.ndarray, "seeds windows"]
    ess: Float[np.ndarray, "seeds windows"]
    skipped: Float[np.ndarray, "seeds windows"]


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
        The samplers, stacked along the first axis, and the history of training.
    """
    runs = _start(cell.densities, cell.learning_rate)(jnp.arange(cell.seeds))
    # A schedule that stays as it is has a gradient of zero: methods that differ in nothing else are compiled once.
    advance = _advance(replace(cell.kind, name="", learned=True), cell.particles, cell.seeds, cell.learning_rate)
    windows = []
    for done in range(0, cell.steps, WINDOW):
        count = min(WINDOW, cell.steps - done)
        runs, window = advance(runs, jnp.asarray(count), jnp.asarray(cell.kind.learned))
        windows.append(np.asarray(window))
        report(done + count, _history(windows))
    return runs.sampler, _history(windows)


def start(seed: Any, densities: int) -> Sampler:
    """Return the sampler of a seed before training."""
    return Sampler.start(jax.random.key(seed), densities)


def _history(windows: Sequence[np.ndarray]) -> History:
    return History(*np.stack(windows, axis=-1).transpose(1, 0, 2))


@lru_cache
def _start(densities: int, learning_rate: float) -> Callable[[Any], Run]:
    """Return a compiled function of the seeds."""

    def run(seed: Any) -> Run:
        sampler, key = start(seed, densities), jax.random.fold_in(jax.random.key(seed), 1)
        return Run(sampler, _optimizer(learning_rate).init(_parameters(sampler)[0]), key, jnp.zeros((), int))

    return jax.jit(jax.vmap(run), compiler_options=HASTE)


def _optimizer(learning_rate: float) -> optax.GradientTransformation:
    return optax.adam(learning_rate)


def _parameters(sampler: Sampler) -> tuple[Any, Any]:
    return eqx.partition(sampler, eqx.is_inexact_array)


@lru_cache
def _advance(method: Method, particles: int, seeds: int, learning_rate: float) -> Callable[..., Any]:
    """Return a compiled function that trains every seed for a number of steps, and averages what it sees."""
    optimizer = _optimizer(learning_rate)

    def loss(parameters: Any, rest: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        q = program(method, eqx.combine(parameters, rest), resampling=method.resampling)
        out = sy.evaluate(q, key, particles=particles)
        return out.loss, (out.log_z, out.ess)

    def update(run: Run, learned: Any) -> tuple[Run, Float[Array, "4"]]:
        parameters, rest = _parameters(run.sampler)
        key = jax.random.fold_in(run.key, run.step)
        (value, (log_z, ess)), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, rest, key)
        gradient = gradient._replace(logits=jnp.where(learned, gradient.logits, 0.0))
        updates, state = optimizer.update(gradient, run.state, parameters)
        # A gradient that is not finite would spoil the parameters for good: such a step is left out.
        fine = jnp.isfinite(optax.tree.norm(gradient))
        after, before = (optax.apply_updates(parameters, updates), state), (parameters, run.state)
        parameters, state = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, before)
        sampler: Any = eqx.combine(parameters, rest)
        return Run(sampler, state, run.key, run.step + 1), jnp.stack([value, log_z, ess, 1.0 - fine])

    def advance(run: Run, count: Any, learned: Any) -> tuple[Run, Float[Array, "4"]]:
        def step(_: Any, carry: tuple[Run, Float[Array, "4"]]) -> tuple[Run, Float[Array, "4"]]:
            run, seen = update(carry[0], learned)
            return run, carry[1] + seen

        run, total = jax.lax.fori_loop(0, count, step, (run, jnp.zeros(4)))
        return run, total / count

    return over_seeds(advance, seeds)
