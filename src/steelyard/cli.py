"""The command line."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Inference programming on JAX.")


@app.callback()
def steelyard() -> None:
    """Inference programming on JAX: properly weighted samplers, by construction."""


@app.command()
def demo(
    particles: Annotated[int, typer.Option(min=1, help="How many particles.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The seed of the random key.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder for the figure.")] = Path("results"),
) -> None:
    """Sample the paper's deep generative mixture, and compare with the exact answers."""
    from steelyard.experiments.mixture.demo import run

    run(particles, seed, out, Console())


def main() -> None:
    """Run the command line."""
    app()
