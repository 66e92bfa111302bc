"""`steelyard table2`: how well videos are explained, next to the paper's Table 2."""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.text import Text

import steelyard as sy
from steelyard.experiments import folders
from steelyard.experiments.tracking import cells, figures, parameters, report, table
from steelyard.experiments.tracking.cells import Cell, Measured
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.rows import COLUMNS, ROWS, WITH_SMALL_STEPS, Row
from steelyard.experiments.tracking.videos import CANVAS


class Plan(NamedTuple):
    """Which part of the table to fill."""

    rows: Sequence[Row] = ROWS
    columns: Sequence[tuple[int, int]] = COLUMNS
    videos: int = 50


# A glimpse: the first proposal of reweighted wake-sleep, and one and nine sweeps after that of APG.
QUICK = Plan(rows=(ROWS[0], ROWS[2], ROWS[4]), columns=((3, 10),), videos=4)


def find(plan: Plan, methods: str | None, columns: str | None, videos: int | None) -> Plan:
    """Return a plan with other methods, columns or numbers of videos, as they are given on the command line.

    Raises:
        ArgumentError: there is no such method, or a column is not of the form 3x10.
    """
    if methods is not None:
        names = [name.strip().upper() for name in methods.split(",")]
        every = (*ROWS, WITH_SMALL_STEPS)
        if unknown := set(names) - {row.name for row in every}:
            known = ", ".join(dict.fromkeys(row.name for row in every))
            raise sy.ArgumentError(f"there is no method {', '.join(sorted(unknown))}; there are {known}.")
        plan = plan._replace(rows=[row for row in every if row.name in names])
    if columns is not None:
        parts = [part.split("x") for part in columns.split(",")]
        if not all(len(part) == 2 and all(x.strip().isdigit() and int(x) > 0 for x in part) for part in parts):
            raise sy.ArgumentError(f"{columns!r} is not a list of numbers of objects and frames such as '3x10,4x20'.")
        plan = plan._replace(columns=[(int(objects), int(length)) for objects, length in parts])
    return plan if videos is None else plan._replace(videos=videos)


def run(plan: Plan, trained: Path | None, out: Path, console: Console, command: str) -> dict[Cell, list[Measured]]:
    """Fill the table, print it, and write everything into a folder.

    Args:
        plan: which cells.
        trained: a folder with the parameters of both methods; None takes those that come with the package.
        out: the folder of the results; videos that were measured there are not measured again.
        console: where to print.
        command: the command line, for the report.

    Raises:
        ArgumentError: the plan makes no sense, or the folder cannot be written.
        CheckpointError: parameters or results cannot be read.
    """
    if not plan.rows or not plan.columns or plan.videos < 1:
        raise sy.ArgumentError("there is nothing to compute: name at least one row, one column and one video.")
    begun = time.monotonic()
    folders.prepare(out / "cells")
    networks = {m: load(m, trained) for m in sorted({row.networks for row in plan.rows})}
    results: dict[Cell, list[Measured]] = {}
    for objects, length in plan.columns:
        for row in plan.rows:
            cell = Cell(row, objects, length)
            results[cell] = _filled(cell, networks[row.networks], plan.videos, out / "cells", console)
    for objects, length in plan.columns:
        console.print(table.printed(results, objects, length))
        console.print(table.gains(results, objects, length), highlight=False)
    console.print(table.CAPTION, highlight=False)
    ceiling = f"The true shapes and positions would give {ceilings(plan)}."
    console.print(ceiling, highlight=False)
    pictures = figures.save_all(networks, results, out)
    facts = {"command": command, "seconds": time.monotonic() - begun, "videos": plan.videos, "ceiling": ceiling}
    page = report.save(results, pictures, facts, out)
    for path in (table.save(results, facts, out), *pictures.values(), page):
        console.print(Text(f"Written: {path}"), soft_wrap=True)
    return results


def show(objects: int, length: int, row: Row, trained: Path | None, out: Path, console: Console) -> Measured:
    """Track one video with the networks of a folder, or with those of the package, and draw it.

    Args:
        objects: how many objects it has.
        length: how many frames.
        row: the sampler.
        trained: as for `run`.
        out: the folder for the pictures.
        console: where to print.

    Returns:
        What is measured of the video.
    """
    folders.prepare(out)
    cell, networks = Cell(row, objects, length), load(row.networks, trained)
    with console.status(f"{cell.label}: compiling"):
        video = cells.held_out(objects, length, 1)
        found = cells.explain(row, networks, video, 0)
    measured = cells.measured(found, video)
    console.print(
        f"{cell.label}: log p(x, z) {measured.log_joint:.0f}; the true shapes and positions have "
        f"{cells.ceiling(objects, length, 1):.0f}. Objects are {measured.pixels:.2f} pixels off on average, "
        f"{'none is' if measured.complete else 'at least one is'} lost.",
        highlight=False,
        soft_wrap=True,
    )
    for path in (
        figures.save_animation(video, found, out / "tracked.gif"),
        figures.save_reconstruction(video, found, out / "figure4.png", rows=1),
    ):
        console.print(Text(f"Written: {path}"), soft_wrap=True)
    return measured


def load(method: str, folder: Path | None = None) -> Networks:
    """Return the networks of a method: those of a folder, or those that come with the package."""
    kind = "apg" if method == "apg" else "rws"
    return parameters.load(parameters.path(kind, folder or parameters.HERE), CANVAS)


def ceilings(plan: Plan) -> str:
    """Tell what log p(x, z) of the true shapes and positions is, without the density of the features."""
    return ", ".join(
        f"{cells.ceiling(objects, length, min(plan.videos, 50)):.0f} (D={objects}, T={length})"
        for objects, length in plan.columns
    )


def _filled(cell: Cell, networks: Networks, videos: int, out: Path, console: Console) -> list[Measured]:
    """Fill a cell, and show how far it is."""
    with console.status(cell.label) as status:
        found = cells.fill(
            cell,
            networks,
            videos,
            out,
            _digest(networks),
            lambda done: status.update(f"{cell.label}: {done} of {videos} videos"),
        )
    if not console.is_terminal:
        joint, error = cells.averages(found)["log_joint"]
        console.print(f"{cell.label}: {joint:.0f} ± {error:.0f}", highlight=False)
    return found


def _digest(networks: Networks) -> str:
    digest = hashlib.sha256()
    for x in jax.tree.leaves(networks):
        if hasattr(x, "shape"):
            digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()[:16]
