"""Evaluations for people, as text: one line, the variables, what went wrong, and a table of levels."""

from typing import Any

import jax
import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from steelyard.inspection.levels import Row, rows
from steelyard.inspection.trouble import explained
from steelyard.output import drawn
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

BLOCKS = "▁▂▃▄▅▆▇█"
LONGEST_SPARKLINE = 30
COLUMNS = 80
OF_A_SCAN = "Of a scan: the sum of the increments, and the worst of each other number."


@drawn.register
def summary(evaluation: Evaluation) -> Group:
    """Return an evaluation as something that `rich` prints: one line, the variables, and a table of levels."""
    table = rows(evaluation)
    lines = [headline(evaluation), standard_error(evaluation), variables(evaluation)]
    lines += [*chosen(evaluation), explained(evaluation)]
    parts: list[Any] = [Text(line) for line in lines if line]
    if table:
        parts.append(_levels(table))
    if any(row.steps for row in table):
        parts += [_steps(table, evaluation.particles), Text(OF_A_SCAN)]
    return Group(*parts)


def headline(evaluation: Evaluation) -> str:
    """Return the line that says how many particles there are, and how good they are."""
    log_z, ess = _mean(evaluation.log_z), _mean(evaluation.ess)
    return f"Evaluation of {evaluation.particles} particles: log Z {log_z}, ESS {ess}"


def standard_error(evaluation: Evaluation) -> str:
    """Return the line that says how sure log Z is; empty, where a single run does not tell, and without resampling."""
    resamples = [level for level in evaluation.levels if level.method]
    known = resamples and all(level.method == "multinomial" for level in resamples)
    if not known or evaluation.log_weight.ndim > 1 or is_traced(evaluation.log_weight) or evaluation.record.redrawn:
        return ""
    variance = float(evaluation.log_z_variance)
    if variance > 0:
        return f"standard error of log Z, from the ancestors of this run: {number(variance**0.5)}"
    if not np.isfinite(float(evaluation.log_z)) or evaluation.particles == 1:
        return ""
    reason = "too few particles for their steps" if variance <= 0 else "all weight descends from one particle"
    return f"standard error of log Z: unknown, {reason}"


def variables(evaluation: Evaluation) -> str:
    """Return the line with the addresses and shapes of all variables."""
    return "trace: " + (", ".join(f"{a} {shape(v)}" for a, v in evaluation.trace.items()) or "empty")


def chosen(evaluation: Evaluation) -> list[str]:
    """Return what is to be said of an adaptive schedule, if there is one."""
    found = evaluation.found
    return [found.says()] if found is not None and not is_traced(found.done) else []


def names_of_columns(table: list[Row]) -> list[str]:
    """Return the names of the numbers that the table shows; those of Markov kernels only where there is one."""
    names = [name for row in table for name in row.numbers]
    always = {"log Z increment", "ESS", "largest weight", "distinct ancestors"}
    return [a for a in dict.fromkeys(names) if a in always or any(row.numbers[a] is not None for row in table)]


def cell(row: Row, name: str) -> str:
    """Return one number of the table of levels."""
    value = row.numbers[name]
    if value is not None:
        return number(value)
    return "" if name in ("acceptance", "squared jump") else "traced"


def sparkline(values: np.ndarray, largest: float | int, longest: int = LONGEST_SPARKLINE) -> str:
    """Return numbers from zero to the largest as a row of blocks; where they are too many, the smallest of each few.

    Example:
        >>> from steelyard.inspection.display import sparkline
        >>> import numpy as np
        >>> sparkline(np.array([0.0, 50.0, 100.0, np.nan]), 100.0)
        '▁▅█?'
    """
    groups = np.array_split(values, min(len(values), longest))
    levels = np.array([group.min() for group in groups]) / largest * len(BLOCKS)
    return "".join(BLOCKS[int(np.clip(x, 0, len(BLOCKS) - 1))] if np.isfinite(x) else "?" for x in levels)


def number(x: float) -> str:
    """Return a number in few characters: four digits, large ones as whole numbers.

    Example:
        >>> from steelyard.inspection.display import number
        >>> number(3.0), number(0.123456), number(12345.6), number(1.5e9)
        ('3', '0.1235', '12346', '1.5e+09')
    """
    return f"{x:.0f}" if 1000 <= abs(x) < 1e7 else f"{x:.4g}"


def shape(value: Any) -> str:
    """Return the types and shapes of the arrays of a value."""
    shapes = [f"{np.dtype(x.dtype).name}{list(x.shape)}" for x in jax.tree.leaves(value)]
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def _levels(table: list[Row]) -> Table:
    names = names_of_columns(table)
    columns = Table(box=None, pad_edge=False, header_style="bold")
    columns.add_column("level", overflow="fold")
    # Where it is tight the names of columns give way first, then labels; numbers never do.
    tight = max(len(row.label) for row in table) + sum(2 + len(name) for name in names) > COLUMNS
    for name in names:
        words = name.split() if tight else [name]
        width = max(map(len, [*words, *(cell(row, name) for row in table)]))
        columns.add_column(name, justify="right", width=width)
    for row in table:
        # A label is no markup: addresses may hold square brackets.
        columns.add_row(Text(row.label), *(cell(row, name) for name in names))
    return columns


def _steps(table: list[Row], particles: int) -> Table:
    columns = Table(box=None, pad_edge=False, header_style="bold")
    columns.add_column("level", overflow="fold")
    columns.add_column(f"ESS of {particles}, step by step", no_wrap=True)
    columns.add_column("smallest", justify="right", no_wrap=True)
    columns.add_column("at step")
    for row in table:
        if row.steps:
            line = sparkline(row.steps.ess, particles)
            columns.add_row(Text(row.label), line, number(row.steps.smallest), row.steps.where)
    return columns


def _mean(x: Any) -> str:
    if is_traced(x):
        return "traced"
    array = np.asarray(x, float)
    return f"{number(float(array.mean()))} (mean of {array.size})" if array.ndim else number(float(array))
