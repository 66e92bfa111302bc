"""Weights that carry no information, explained from what is left of the particles: under `jit` nothing is raised."""

from typing import Any

import jax
import numpy as np

from steelyard.devices.hosts import on_this_host
from steelyard.engines.degenerate import Problem, counted, problem_of, where_it_began
from steelyard.maps import Map
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

# Of so many addresses it tells; one is often enough to blame for all.
MOST_ADDRESSES = 3


def explained(evaluation: Evaluation) -> str | None:
    """Return what is wrong with the weights: at which level, at which addresses, in how many particles; or None."""
    if is_traced(evaluation.log_weight):
        return None
    problem = problem_of(evaluation.log_weight)
    if problem is None:
        return None
    evaluation = on_this_host(evaluation)
    began = where_it_began(evaluation)
    blame = _blame(evaluation, problem, began is not None and began.step is not None)
    return f"No result: {counted(problem)} weight {problem.name}{began or ''}. {blame} {problem.remedy}."


def _blame(evaluation: Evaluation, problem: Problem, in_a_scan: bool) -> str:
    found = [("density", a, n) for a, n in _affected(evaluation.log_density, problem)]
    if problem.name == "NaN":
        found = [("value", a, n) for a, n in _affected(evaluation.trace, problem)] + found
    if not found:
        advice = "Look at what this step is given." if in_a_scan else "Without jit, evaluate looks for it."
        elsewhere = "it was in an earlier step, or in a proposal" if in_a_scan else "it was in a proposal"
        return f"No density of the particles that are left is {problem.name}: {elsewhere}. {advice}"
    kind, a, n = found[0]
    first = f"The {kind} at {a!r} is {problem.name} in {n} of {problem.flags.size} particles"
    rest = [f", the {kind} at {a!r} in {n}" for kind, a, n in found[1:MOST_ADDRESSES]]
    more = f", and {len(found) - MOST_ADDRESSES} more" if len(found) > MOST_ADDRESSES else ""
    return f"{first}{''.join(rest)}{more}."


def _affected(values: Map[Any], problem: Problem) -> list[tuple[str, int]]:
    """Return the addresses at which particles have the problem, and how many do, the most first."""
    batch = problem.flags.shape
    counts = {}
    for a in values:
        bad = np.zeros(batch, bool)
        for leaf in jax.tree.leaves(values[a]):
            if not is_traced(leaf) and np.issubdtype(leaf.dtype, np.floating):
                bad |= problem.bad(np.asarray(leaf)).reshape(*batch, -1).any(axis=-1)
        # What a particle lacks cannot be to blame.
        mask = values.present(a)
        counts[a] = int((bad if is_traced(mask) else bad & np.asarray(mask)).sum())
    return sorted(((a, n) for a, n in counts.items() if n), key=lambda pair: -pair[1])
