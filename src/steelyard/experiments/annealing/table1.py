"""`steelyard table1`: from settings to the table, the figures and the report."""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

import steelyard as sy
from steelyard.experiments import folders
from steelyard.experiments.annealing import cells, figures, methods, report, table
from steelyard.experiments.annealing.cells import Result
from steelyard.experiments.annealing.evaluation import evaluate
from steelyard.experiments.annealing.evaluation import prepare as prepare_evaluation
from steelyard.experiments.annealing.settings import AVERAGE, BATCHES, PAPER_BUDGET, PAPER_STEPS, Cell
from steelyard.experiments.annealing.train import History, train
from steelyard.experiments.annealing.train import prepare as prepare_training

PACKAGES = ("steelyard", "jax", "jaxlib", "numpyro", "optax", "equinox", "numpy")


class Plan(NamedTuple):
    """Which part of the table to fill, and how; the defaults are the paper's, but for the average."""

    methods: Sequence[str] = tuple(methods.METHODS)
    densities: Sequence[int] = (2, 4, 6, 8)
    seeds: int = 10
    steps: int = PAPER_STEPS
    budget: int = PAPER_BUDGET
    batches: int = BATCHES
    average: float = AVERAGE

    def cells(self) -> list[Cell]:
        """Return the cells, in the order of the table.

        Raises:
            ArgumentError: a value makes no sense.
        """
        return [
            Cell(method.name, k, self.seeds, self.steps, self.budget, batches=self.batches, average=self.average)
            for method in methods.find(self.methods)
            for k in sorted(set(self.densities))
        ]


PAPER = Plan(average=0.0).cells()[0].effort
QUICK = Plan(methods=("AVO", "NVIR*"), densities=(8,), seeds=2, steps=3_000)


def run(plan: Plan, out: Path, console: Console, command: str) -> list[Result]:
    """Fill the table, print it, and write everything into a folder.

    Args:
        plan: which cells.
        out: the folder; cells that are finished there are not computed again.
        console: where to print.
        command: the command line, for the report.

    Returns:
        The cells.

    Raises:
        ArgumentError: the plan makes no sense, or the folder cannot be written.
        CheckpointError: a file of a finished cell is damaged.
    """
    begun = time.monotonic()
    planned = plan.cells()
    for folder in (out, out / cells.FOLDER):
        folders.prepare(folder)
    results = {cell: result for cell in planned if (result := cells.load(cell, out)) is not None}
    if results:
        console.print(Text(f"{len(results)} of {len(planned)} cells are in {out} already."), soft_wrap=True)
    missing = [cell for cell in planned if cell not in results]
    with _progress(missing, console) as progress, ThreadPoolExecutor(1) as background:
        compiled = [_Compiled.ahead(cell, background) for cell in missing[:1]]
        for i, cell in enumerate(missing):
            compiled += [_Compiled.ahead(following, background) for following in missing[i + 1 : i + 2]]
            results[cell] = _fill(cell, compiled[i], list(results.values()), progress)
            cells.save(results[cell], out)
    finished = [results[cell] for cell in planned]
    rows = [table.Row.of(result) for result in finished]
    console.print(table.printed(rows))
    console.print(f"These cells: {planned[0].effort}. The paper's: {PAPER}.", highlight=False)
    facts = about(command, finished)
    pictures = figures.save(finished, out)
    page = report.save(finished, pictures, facts, out)
    for path in [*table.save(rows, facts, out), *pictures.values(), page]:
        console.print(Text(f"Written: {path}"), soft_wrap=True)
    console.print(f"{len(missing)} cells computed in {time.monotonic() - begun:.0f} seconds. {table.PEERS}")
    return finished


def about(command: str, results: Sequence[Result]) -> dict[str, Any]:
    """Return what is to be known about a run, besides its numbers."""
    return {
        "command": command,
        "settings": [result.cell.as_dict() for result in results],
        "seconds": sum(result.seconds for result in results),
        "seconds_of_the_paper": sum(result.seconds for result in results if result.cell.method in table.PAPER_ESS),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}, {len(jax.devices('cpu'))} CPU devices",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


Report = Callable[[Cell, int, History | None], None]


class _Compiled(NamedTuple):
    """What a cell needs is compiled while the cell before it trains."""

    training: Future[None]
    evaluation: Future[None]

    @classmethod
    def ahead(cls, cell: Cell, background: ThreadPoolExecutor) -> "_Compiled":
        training = background.submit(prepare_training, cell)
        return cls(training, background.submit(prepare_evaluation, cell.densities, cell.seeds, cell.samples))


def _fill(cell: Cell, compiled: _Compiled, others: Sequence[Result], report: Report) -> Result:
    begun = time.monotonic()
    for other in others:
        if other.cell.work == cell.work:
            report(cell, cell.steps, other.history)
            return replace(other, cell=cell, seconds=time.monotonic() - begun)
    report(cell, 0, None)
    compiled.training.result()
    samplers, history = train(cell, lambda steps, history: report(cell, steps, history))
    compiled.evaluation.result()
    plain, resampled = (evaluate(cell, samplers, resampling=resampling) for resampling in (False, True))
    if not np.all(np.isfinite([plain.log_z, resampled.log_z])):
        raise sy.WeightError(f"{cell.method} at K = {cell.densities} went astray: its log Z is not finite.")
    return Result(cell, plain, resampled, time.monotonic() - begun, samplers, history)


@contextmanager
def _progress(missing: Sequence[Cell], console: Console) -> Iterator[Report]:
    """Show how far the whole table is; a step at K costs about K, since the loop over levels is what takes the time."""
    total = sum(cell.steps * cell.densities for cell in missing)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    before: dict[Cell, int] = {}
    for cell in missing:
        before[cell] = sum(other.steps * other.densities for other in before)
    with Progress(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=120) as bar:
        task = bar.add_task("", total=total)

        def report(cell: Cell, steps: int, history: History | None) -> None:
            name = f"{cell.method} K={cell.densities}"
            if history is None and not console.is_terminal:
                console.print(f"{name}: cell {list(before).index(cell) + 1} of {len(missing)}", highlight=False)
            state = "compiling" if history is None else f"log Z {np.mean(history.log_z[:, -1]):.3f}"
            bar.update(task, completed=before[cell] + steps * cell.densities, description=f"{name}, {state}")

        yield report
