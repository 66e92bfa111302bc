"""The command line."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from steelyard.errors import ArgumentError, SteelyardError
from steelyard.output import terminal
from steelyard.version import __version__

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Inference programming on JAX.")
table2 = typer.Typer(add_completion=False, help="Unsupervised multi-object tracking, next to the paper's Table 2.")
app.add_typer(table2, name="table2")


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"steelyard {__version__}")
        raise typer.Exit


@app.callback()
def steelyard(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version, and end.")
    ] = False,
) -> None:
    """Inference programming on JAX: properly weighted samplers, by construction."""


@app.command()
def demo(
    particles: Annotated[int, typer.Option(min=1, help="How many particles.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The seed of the random key.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder for the figure.")] = Path("results"),
) -> None:
    """Sample the paper's deep generative mixture, and compare with the exact answers."""
    from steelyard.experiments.mixture.demo import run

    with _explained():
        run(particles, seed, out, terminal())


@app.command()
def table1(
    methods: Annotated[str | None, typer.Option(help="Which methods, e.g. 'AVO,NVIR*'.", show_default="all")] = None,
    K: Annotated[
        str | None, typer.Option("--K", help="How many densities, e.g. '2,8'.", show_default="2,4,6,8")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many training runs.", show_default="10")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps of training.", show_default="20000")] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="K times the number of particles.", show_default="288")
    ] = None,
    average: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Test the average over this share of the last steps; 0: the last.", show_default="0.1"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder for results.", show_default="results/table1")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A glimpse: AVO and NVIR*, K=8, 2 seeds, 3,000 steps, in results/quick.")
    ] = False,
) -> None:
    """Train and evaluate annealed variational inference, next to the paper's Table 1."""
    from steelyard.experiments.annealing.table1 import QUICK, Plan, run

    given = {
        "methods": methods if methods is None else [name.strip() for name in methods.split(",")],
        "densities": K if K is None else _integers(K, "--K"),
        "seeds": seeds,
        "steps": steps,
        "budget": budget,
        "average": average,
    }
    plan = (QUICK if quick else Plan())._replace(**{name: x for name, x in given.items() if x is not None})
    folder = out or Path("results") / ("quick" if quick else "table1")
    with _explained():
        run(plan, folder, terminal(), shlex.join(["steelyard", *sys.argv[1:]]))


@table2.callback(invoke_without_command=True)
def table2_evaluate(
    context: typer.Context,
    methods: Annotated[
        str | None, typer.Option(help="Which methods: some of 'RWS,HMC-RWS,APG'.", show_default="all")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Which videos, as objects x frames, e.g. '3x10,4x20'.", show_default="all four")
    ] = None,
    videos: Annotated[int | None, typer.Option(min=1, help="How many test videos a cell.", show_default="50")] = None,
    trained: Annotated[
        Path | None, typer.Option(help="A folder with parameters.", show_default="those of the package")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder for results.", show_default="results/table2")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A glimpse: three methods on four videos.")] = False,
) -> None:
    """Explain test videos with each method, next to the paper's Table 2."""
    if context.invoked_subcommand is not None:
        return
    from steelyard.experiments.tracking.table2 import QUICK, Plan, find, run

    with _explained():
        plan = find(QUICK if quick else Plan(), methods, columns, videos)
        folder = out or Path("results") / ("quick2" if quick else "table2")
        run(plan, trained, folder, terminal(), shlex.join(["steelyard", *sys.argv[1:]]))


@table2.command("show")
def table2_show(
    objects: Annotated[int, typer.Option(min=1, max=7, help="How many objects.")] = 3,
    frames: Annotated[int, typer.Option(min=1, help="How many frames.")] = 10,
    particles: Annotated[int, typer.Option(min=1, help="L, how many particles.")] = 20,
    sweeps: Annotated[int, typer.Option(min=1, help="K, how many sweeps, the first proposal included.")] = 10,
    trained: Annotated[
        Path | None, typer.Option(help="A folder with parameters.", show_default="those of the package")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the pictures.")] = Path("results/tracking"),
) -> None:
    """Track the objects of one video with amortized population Gibbs, and draw it."""
    from steelyard.experiments.tracking.rows import Row
    from steelyard.experiments.tracking.table2 import show

    with _explained():
        show(objects, frames, Row("APG", "apg", particles, sweeps), trained, out, terminal())


@table2.command("train")
def table2_train(
    method: Annotated[str, typer.Option(help="What to train: apg or rws.")] = "apg",
    small: Annotated[bool, typer.Option("--small", help="Two objects in a small room: ten minutes.")] = False,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's setting: weeks on two cores.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for checkpoints, log and parameters.")] = Path("results/table2"),
) -> None:
    """Learn the generative model and the proposals from videos; the same command goes on after an interruption."""
    from steelyard.experiments.tracking.settings import PAPER, SHORT, SMALL
    from steelyard.experiments.tracking.train import train

    if method not in ("apg", "rws"):
        raise typer.BadParameter(f"{method!r} is neither apg nor rws.", param_hint="--method")
    with _explained():
        train(method, SMALL if small else PAPER if paper else SHORT, out, terminal())


@contextmanager
def _explained() -> Iterator[None]:
    """End with the message of an error of this library, without a traceback."""
    try:
        yield
    except ArgumentError as error:
        raise typer.BadParameter(str(error)) from error
    except SteelyardError as error:
        terminal(stderr=True).print(f"Error: {error}", style="red", soft_wrap=True)
        raise typer.Exit(1) from error


def _integers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers such as '2,8'.", param_hint=option) from None


def main() -> None:
    """Run the command line. Table 1 spreads its seeds over devices, one for each core: it starts anew with as many."""
    if sys.argv[1:2] == ["table1"] and "JAX_NUM_CPU_DEVICES" not in os.environ:
        cores = {"JAX_NUM_CPU_DEVICES": str(os.cpu_count() or 1)}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | cores)
    app()
