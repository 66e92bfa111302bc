"""Training: all seeds of a cell in one compiled program."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

import steelyard as sy
from steelyard.experiments.annealing.methods import program
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
    runs = jax.jit(jax.vmap(_start(cell)), compiler_options=HASTE)(jnp.arange(cell.seeds))
    advance = over_seeds(_advance(cell), cell.seeds)
    windows = []
    for done in range(0, cell.steps, WINDOW):
        count = min(WINDOW, cell.steps - done)
        runs, window = advance(runs, jnp.asarray(count))
        windows.append(np.asarray(window))
        report(done + count, History(*np.stack(windows, axis=-1).transpose(1, 0, 2)))
    return runs.sampler, History(*np.stack(windows, axis=-1).transpose(1, 0, 2))


def start(seed: Any, densities: int) -> Sampler:
    """Return the sampler of a seed before training."""
    return Sampler.start(jax.random.key(seed), densities)


def _start(cell: Cell) -> Callable[[Any], Run]:
    def run(seed: Any) -> Run:
        sampler, key = start(seed, cell.densities), jax.random.fold_in(jax.random.key(seed), 1)
        return Run(sampler, _optimizer(cell).init(_learned(sampler)), key, jnp.zeros((), int))

    return run


def _optimizer(cell: Cell) -> optax.GradientTransformation:
    return optax.adam(cell.learning_rate)


def _learned(sampler: Sampler) -> Any:
    return eqx.filter(sampler, eqx.is_inexact_array)


def _advance(cell: Cell) -> Callable[[Run, Any], tuple[Run, Float[Array, "4"]]]:
    optimizer = _optimizer(cell)

    def loss(learned: Any, rest: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        q = program(cell.kind, eqx.combine(learned, rest), resampling=cell.kind.resampling)
        out = sy.evaluate(q, key, particles=cell.particles)
        return out.loss, (out.log_z, out.ess)

    def update(_: Any, carry: tuple[Run, Float[Array, "4"]]) -> tuple[Run, Float[Array, "4"]]:
        run, total = carry
        learned, rest = eqx.partition(run.sampler, eqx.is_inexact_array)
        key = jax.random.fold_in(run.key, run.step)
        (value, (log_z, ess)), gradient = jax.value_and_grad(loss, has_aux=True)(learned, rest, key)
        updates, state = optimizer.update(gradient, run.state, learned)
        # A gradient that is not finite would spoil the parameters for good: such a step is left out.
        fine = jnp.isfinite(optax.tree.norm(gradient))
        learned, state = jax.tree.map(
            lambda new, old: jnp.where(fine, new, old),
            (optax.apply_updates(learned, updates), state),
            (learned, run.state),
        )
        seen = jnp.stack([value, log_z, ess, 1.0 - fine])
        return Run(eqx.combine(learned, rest), state, run.key, run.step + 1), total + seen

    def advance(run: Run, count: Any) -> tuple[Run, Float[Array, "4"]]:
        run, total = jax.lax.fori_loop(0, count, update, (run, jnp.zeros(4)))
        return run, total / count

    return advance
