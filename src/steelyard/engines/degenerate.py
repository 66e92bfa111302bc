"""Weights that carry no information, and where in a program they come from."""

from collections.abc import Callable
from typing import Any

import numpy as np

from steelyard.errors import WeightError
from steelyard.language.describe import describe
from steelyard.language.programs import Program
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

Looker = Callable[[Program, Any, Evaluation], None]


def check_weights(e: Evaluation, q: Program, again: Callable[[Looker], Any]) -> None:
    """Raise `WeightError` if a weight is NaN or infinite, or all are zero; not under `jit`, where none is known.

    `again` evaluates q once more and shows every judgement, to find the first density that is to blame.
    """
    if is_traced(e.log_weight):
        return
    if e.found is not None and not is_traced(e.found.done) and not e.found.done:
        raise WeightError(f"{describe(q)}: {e.found.says()}")
    log_weight = np.asarray(e.log_weight)
    if np.isnan(log_weight).any():
        problem, remedy, bad = "NaN", "Look for NaN in the arguments and parameters", np.isnan
    elif (log_weight == np.inf).any():
        problem, remedy, bad = "infinite", "A density is infinite, or a factor is", np.isposinf
    elif (log_weight == -np.inf).all():
        problem, remedy, bad = "zero", "The proposals miss the support of the target", np.isneginf
    else:
        return
    count = int(bad(log_weight).sum())
    counted = "every particle has" if count == log_weight.size else f"{count} of {log_weight.size} particles have"
    # Under `grad` of a detached program weights are known, and what carries gradients is not.
    known = [level for level in e.levels if not is_traced(level.log_z_increment)]
    levels = [level.label for level in known if not np.isfinite(level.log_z_increment).all()]
    where = f", from {levels[0]} on" if levels else ""
    raise WeightError(f"{describe(q)}: {counted} weight {problem}{where}{_blame(again, bad, count)}. {remedy}.")


def _blame(again: Callable[[Looker], Any], bad: Callable[[Any], Any], count: int) -> str:
    """Return the first density that as many particles have trouble with, if there is one outside of loops."""
    found: list[str] = []

    def look(q: Program, tau0: Any, e: Evaluation) -> None:
        for a, rho in e.log_density.items():
            if not found and not is_traced(rho) and bad(np.asarray(rho, float)).sum() >= count:
                found.append(f"; the density at {a!r} in {describe(q)} is the first to blame")

    again(look)
    return found[0] if found else ""
