"""Evaluations for people: one paragraph of text, or a table of levels."""

from typing import Any

import jax
import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from steelyard.output import drawn
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced


@drawn.register
def summary(evaluation: Evaluation) -> Group:
    """Return an evaluation as something that `rich` prints: one line, the variables, and a table of levels."""
    size = evaluation.particles
    parts: list[Any] = [
        Text(f"Evaluation of {size} particles: log Z {_number(evaluation.log_z)}, ESS {_number(evaluation.ess)}"),
        Text("trace: " + (", ".join(f"{a} {_shape(v)}" for a, v in evaluation.trace.items()) or "empty")),
    ]
    if evaluation.found is not None and not is_traced(evaluation.found.done):
        parts.append(Text(evaluation.found.says()))
    if evaluation.levels:
        parts.append(levels(evaluation))
    return Group(*parts)


def levels(evaluation: Evaluation) -> Table:
    """Return the table of levels."""
    columns = Table(box=None, pad_edge=False, header_style="bold")
    columns.add_column("level")
    names = ["log Z increment", "ESS", "largest weight", "distinct ancestors"]
    moves = any(level.acceptance is not None for level in evaluation.levels)
    for name in [*names, *(("acceptance", "squared jump") if moves else ())]:
        columns.add_column(name, justify="right")
    for level in evaluation.levels:
        numbers = [level.log_z_increment, level.ess, level.max_weight, level.ancestors]
        numbers += [level.acceptance, level.jump] if level.acceptance is not None else []
        numbers = [used(x, evaluation.found) for x in numbers]
        stacked = np.ndim(numbers[0]) == 1 and evaluation.log_weight.ndim == 1
        label = f"{level.label} x {len(numbers[0])}" if stacked else level.label
        # A label is no markup: addresses may hold square brackets.
        columns.add_row(Text(label), *(_number(x, short=stacked) for x in numbers))
    return columns


def used(numbers: Any, found: Any) -> Any:
    """Return what steps gave, of an adaptive schedule those that there were."""
    if found is None or is_traced(found.count) or np.shape(numbers)[:1] != (found.most,):
        return numbers
    return numbers[: int(found.count)]


def _number(x: Any, *, short: bool = False) -> str:
    """Return a number, or the mean of an array; how many they are, unless that is said elsewhere."""
    if is_traced(x):
        return "traced"
    array = np.asarray(x)
    if array.ndim:
        return f"{array.mean():.4g}" if short else f"{array.mean():.4g} (mean of {array.size})"
    number = array.item()
    return f"{number:.0f}" if isinstance(number, int) or abs(number) >= 1000 else f"{number:.4g}"


def _shape(value: Any) -> str:
    shapes = [f"{np.dtype(x.dtype).name}{list(x.shape)}" for x in jax.tree.leaves(value)]
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
