"""`python -m benchmarks.rows`: NVIR and NVIR* of the paper's first table, trained with coix, tested as by `table1`.

No timing, but a check by another implementation of what fixed and learned schedules lead to: see
`src/steelyard/experiments/annealing/README.md`. Four minutes.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from rich.console import Console

from benchmarks.measure import gradient_step
from benchmarks.ring import OPTIMIZER, by_coix
from steelyard.experiments.annealing.evaluation import Metrics, Summary, evaluate
from steelyard.experiments.annealing.model import Sampler
from steelyard.experiments.annealing.settings import Cell

SEEDS, STEPS, BUDGET = 4, 20_000, 288


def train(cell: Cell) -> Sampler:
    """Train every seed with coix; the parameters of the last step."""
    seeds = jnp.arange(cell.seeds)
    _, static = eqx.partition(Sampler.start(jax.random.key(0), cell.densities), eqx.is_inexact_array)
    loss = by_coix(rolled=False, densities=cell.densities, particles=cell.particles, learned=cell.kind.learned)
    step = gradient_step(loss, static, OPTIMIZER)

    def run(seed: Any) -> Any:
        parameters = eqx.filter(Sampler.start(jax.random.key(seed), cell.densities), eqx.is_inexact_array)
        key = jax.random.fold_in(jax.random.key(seed), 1)

        def body(i: Any, carry: Any) -> Any:
            return step(*carry, jax.random.fold_in(key, i))[:2]

        return jax.lax.fori_loop(0, cell.steps, body, (parameters, OPTIMIZER.init(parameters)))[0]

    return eqx.combine(jax.jit(lambda: jax.lax.map(run, seeds))(), static)


def text(metrics: Metrics) -> str:
    """Return what the table compares."""
    return f"log Z {Summary.of(metrics.log_z).text(3)}, ESS {Summary.of(metrics.ess).text(0)}"


def main() -> None:
    """Train, test and print."""
    console = Console()
    for densities in (4, 6):
        for method in ("NVIR", "NVIR*"):
            cell = Cell(method, densities, SEEDS, STEPS, BUDGET, average=0.0)
            with console.status(f"{method}, K = {densities} ..."):
                samplers = train(cell)
                plain, resampled = (text(evaluate(cell, samplers, resampling=flag)) for flag in (False, True))
            console.print(f"{method}, K = {densities}, by coix: {plain}; resampled at test time: {resampled}")


if __name__ == "__main__":
    main()
