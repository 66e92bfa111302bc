"""The figures: samples at each level (the paper's Figure 3), learned schedules, and how training went."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import steelyard as sy
from steelyard.experiments.annealing.cells import Result
from steelyard.experiments.annealing.model import LOG_Z, Sampler, annealed, initial, log_ring
from steelyard.experiments.annealing.train import HASTE, WINDOW
from steelyard.experiments.folders import write

EXTENT, PIXELS, SAMPLES = 15.0, 150, 2_000


def save(results: Sequence[Result], out: Path) -> dict[str, Path]:
    """Draw every figure, and save it as PNG.

    Args:
        results: the cells.
        out: the folder of the results.

    Returns:
        The paths of the figures, by what they show.
    """
    figures = {"samples": samples(shown(results)), "schedules": schedules(results), "training": training(results)}
    paths = {}
    for name, figure in figures.items():
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=110)
        paths[name] = write(out / f"{name}.png", file.getvalue())
    return paths


def shown(results: Sequence[Result]) -> Result:
    """Return the cell to look at closely: NVIR* with the longest path, if there is one."""
    return max(results, key=lambda result: (result.cell.method == "NVIR*", result.cell.densities))


def first(result: Result) -> Sampler:
    """Return the sampler of the first seed."""
    return jax.tree.map(lambda x: x[0], result.samplers)


def samples(result: Result) -> Figure:
    """Draw the density of every level, and beneath it the samples of the first seed, resampled by their weights."""
    sampler = first(result)
    betas = sampler.schedule(learned=False)
    figure = Figure(figsize=(1.9 * len(betas), 4.2), layout="constrained")
    axes = figure.subplots(2, len(betas), squeeze=False, sharex=True, sharey=True)
    line = jnp.linspace(-EXTENT, EXTENT, PIXELS)
    grid = jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)
    log_start, log_end = jax.vmap(lambda x: (initial.log_prob(x).sum(), log_ring(x)))(grid)
    for k, (beta, xs) in enumerate(zip(np.asarray(betas), _levels(sampler), strict=True)):
        log_density = np.asarray((1 - beta) * log_start + beta * log_end).reshape(PIXELS, PIXELS)
        extent = (-EXTENT, EXTENT, -EXTENT, EXTENT)
        axes[0, k].imshow(np.exp(log_density - log_density.max()), origin="lower", extent=extent, cmap="viridis")
        axes[0, k].set_title(f"$\\beta_{{{k + 1}}}$ = {beta:.3g}")
        axes[1, k].plot(*np.asarray(xs).T, ".", markersize=1.2, alpha=0.5, color="C0")
        axes[1, k].set(xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), aspect="equal")
    axes[0, 0].set_ylabel("density")
    axes[1, 0].set_ylabel("samples")
    figure.suptitle(f"{result.cell.method}, K = {result.cell.densities}: every level and its target")
    return figure


def _levels(sampler: Sampler) -> list[Float[Array, "samples 2"]]:
    """Return samples of every level, the initial proposal first, resampled by the weights that they have there."""

    def step(q: Any, x: Any) -> Any:
        beta, (forward, reverse) = x
        return sy.resample(sy.propose(sy.extend(annealed(beta), sy.prev(reverse)), sy.move(forward, q)))

    def run(betas: Any, kernels: Any) -> Any:
        q = sy.scan(step, annealed(betas[0]), (betas[1:], kernels), keep=["x"])
        return sy.evaluate(q, jax.random.key(1), particles=SAMPLES).kept

    compiled = jax.jit(run, compiler_options=HASTE)
    kept = compiled(sampler.schedule(learned=False), (sampler.forward, sampler.reverse))
    return [kept.first["x"], *kept.values["x"]]


def schedules(results: Sequence[Result]) -> Figure:
    """Draw the schedules that were learned, a line for each seed, against the linear one."""
    counts = sorted({result.cell.densities for result in results})
    figure = Figure(figsize=(3.2 * len(counts) + 0.6, 3.2), layout="constrained")
    for axis, k in zip(figure.subplots(1, len(counts), squeeze=False)[0], counts, strict=True):
        places = np.arange(1, k + 1)
        axis.plot(places, np.linspace(0, 1, k), "--", color="0.6", label="linear")
        learned = [result for result in results if result.cell.densities == k and result.cell.kind.learned]
        for number, result in enumerate(learned):
            betas = jax.vmap(lambda sampler: sampler.schedule(learned=False))(result.samplers)
            lines = axis.plot(places, np.asarray(betas).T, "o-", markersize=3, linewidth=0.8, color=f"C{number}")
            lines[0].set_label(result.cell.method)
        axis.set(title=f"K = {k}", xlabel="level", ylabel="β", xticks=places, ylim=(-0.03, 1.03))
        axis.legend(frameon=False)
    figure.suptitle("Learned schedules")
    return figure


def training(results: Sequence[Result]) -> Figure:
    """Draw log Z and ESS during training, averaged over the seeds."""
    counts = sorted({result.cell.densities for result in results})
    figure = Figure(figsize=(3.2 * len(counts) + 0.6, 5.4), layout="constrained")
    axes = figure.subplots(2, len(counts), squeeze=False, sharex=True)
    for column, k in enumerate(counts):
        for result in results:
            if result.cell.densities == k:
                history, cell = result.history, result.cell
                steps = np.minimum(WINDOW * np.arange(1, history.log_z.shape[1] + 1), cell.steps)
                _line(axes[0, column], steps, history.log_z, cell.method)
                _line(axes[1, column], steps, history.ess / cell.particles, cell.method)
        axes[0, column].axhline(LOG_Z, linestyle="--", color="0.6", label="log 8")
        axes[0, column].set(title=f"K = {k}", ylabel="log Z")
        axes[1, column].set(xlabel="step", ylabel="ESS / L, as in training", ylim=(0, 1))
        axes[0, column].legend(frameon=False, fontsize="small")
    figure.suptitle(f"Training, averaged over {WINDOW} steps")
    return figure


def _line(axis: Axes, steps: np.ndarray, values: np.ndarray, label: str) -> None:
    axis.plot(steps, np.mean(values, axis=0), linewidth=1, label=label)
