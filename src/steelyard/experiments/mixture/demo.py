"""`steelyard demo`: the mixture from program to figure."""

from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table
from rich.text import Text

import steelyard as sy
from steelyard.experiments import folders
from steelyard.experiments.mixture import figures
from steelyard.experiments.mixture.model import CLUSTERS, IMAGE, Exact, exact, sampler


def run(particles: int, seed: int, out: Path, console: Console) -> Path:
    """Evaluate the sampler, print what it is and what it found, and save a figure.

    Args:
        particles: how many particles.
        seed: the seed of the key.
        out: the folder for the figure.
        console: where to print.

    Returns:
        The path of the figure.

    Raises:
        ArgumentError: the folder cannot be written.
    """
    folders.prepare(out)
    q = sampler()
    console.rule("The inference program")
    sy.show(q, console=console)
    console.rule("What to know before it runs")
    console.print(Text(repr(sy.check(q, IMAGE))))

    evaluation = jax.jit(lambda key, x: sy.evaluate(q, key, x, particles=particles))(jax.random.key(seed), IMAGE)
    truth = exact(IMAGE)
    console.rule("Estimates")
    console.print(_estimates(evaluation, truth))
    console.rule("Levels")
    console.print(evaluation)
    path = figures.save(evaluation, truth, out)
    console.print(Text(f"Figure: {path}"), soft_wrap=True)
    return path


def _estimates(evaluation: sy.Evaluation, truth: Exact) -> Table:
    cluster = evaluation.expect(lambda t: jax.nn.one_hot(t["z"], CLUSTERS))
    rows = [
        ("log Z", evaluation.log_z, truth.log_z),
        ("E[v | x]", evaluation.expect(lambda t: t["v"]), truth.embedding),
    ]
    rows += [(f"p(z = {k} | x)", cluster[k], truth.cluster[k]) for k in range(CLUSTERS)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("quantity")
    for name in ("estimate", "exact", "difference"):
        table.add_column(name, justify="right")
    for name, estimate, value in rows:
        table.add_row(Text(name), f"{jnp.asarray(estimate):.4f}", f"{value:.4f}", f"{float(estimate) - value:+.4f}")
    return table
