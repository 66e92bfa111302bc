"""The levels of an evaluation as rows of numbers, which tables and plots show."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.engines.degenerate import step_of
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.record import LevelSummary, used_steps
from steelyard.types import is_traced


@dataclass(frozen=True)
class Steps:
    """The effective sample size at each step of a scan; of scans in scans, at each step of the innermost.

    Attributes:
        ess: one number for each step, of a batch the smallest.
        increments: how much log Z changed at each step, of a batch the mean.
        shape: how many steps each of the scans has, the outermost first.
    """

    ess: np.ndarray
    increments: np.ndarray
    shape: tuple[int, ...]

    @property
    def smallest(self) -> float:
        """The smallest effective sample size; NaN, if one is."""
        return float(self.ess.min())

    @property
    def where(self) -> str:
        """The first step with the smallest one, counted from one."""
        return step_of(int(self.ess.argmin()), self.shape)


@dataclass(frozen=True)
class Row:
    """One level.

    Attributes:
        label: the combinator and its target, and the number of steps.
        numbers: by name. Of a scan, the sum of the increments of log Z and the worst of each other number. Of a batch,
            the mean; of scans the worst. None where it is not known yet, and where there is none.
        steps: of a scan, what happened at each step.
    """

    label: str
    numbers: dict[str, float | None]
    steps: Steps | None


def rows(evaluation: Evaluation) -> list[Row]:
    """Return a row for each level, in the order in which they ran."""
    return [_row(level, evaluation) for level in evaluation.levels]


def _row(level: LevelSummary, evaluation: Evaluation) -> Row:
    batch = np.ndim(evaluation.log_weight) - 1
    shape = np.shape(level.log_z_increment)
    used = used_steps(level, shape)

    def reduced(x: Any, worst: Any) -> float | None:
        if x is None or is_traced(x):
            return None
        array = np.broadcast_to(np.asarray(x, float), shape)
        if len(shape) == batch:
            return float(array.mean())
        if worst is not None:
            return float(worst(array[used])) if used.any() else None
        axes = tuple(range(batch, len(shape)))
        # Not a product: what is beyond the end of an adaptive schedule may be NaN.
        return float(np.where(used, array, 0.0).sum(axis=axes).mean())

    numbers = {
        "log Z increment": reduced(level.log_z_increment, None),
        "ESS": reduced(level.ess, np.min),
        "largest weight": reduced(level.max_weight, np.max),
        "distinct ancestors": reduced(level.ancestors, np.min),
        "acceptance": reduced(level.acceptance, np.min),
        "squared jump": reduced(level.jump, np.min),
    }
    steps = _steps(level, batch, used)
    lengths = shape[batch:] if steps is None else steps.shape
    return Row(level.label + "".join(f" x {n}" for n in lengths), numbers, steps)


def _steps(level: LevelSummary, batch: int, used: np.ndarray) -> Steps | None:
    if is_traced(level.ess) or used.ndim == batch or not used.any():
        return None
    # The largest number stands for a run of a batch that had ended by then; it is never the smallest.
    ess = np.where(used, np.asarray(level.ess, float), np.inf)
    ess = ess.reshape(-1, *used.shape[batch:]).min(axis=0)
    count = int(used.reshape(-1, *used.shape[batch:]).any(axis=(0, *range(2, used.ndim - batch + 1))).sum())
    ess = ess[:count]
    increments = np.full(used.shape, np.nan)
    if not is_traced(level.log_z_increment):
        increments = np.where(used, np.asarray(level.log_z_increment, float), 0.0)
    increments = increments.reshape(-1, *used.shape[batch:]).mean(axis=0)[:count]
    return Steps(ess.reshape(-1), increments.reshape(-1), ess.shape)
