"""Weights that carry no information, and where in a program they come from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from steelyard.devices.hosts import is_spread, on_this_host
from steelyard.errors import WeightError
from steelyard.language.describe import describe
from steelyard.language.programs import Program
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.record import used_steps
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
    problem = problem_of(e.log_weight)
    if problem is None:
        return
    # To look for it, programs run operation by operation, which needs all particles in one process.
    blame = "" if is_spread(e.log_weight) else _blame(again, problem.bad, int(problem.flags.sum()))
    raise WeightError(
        f"{describe(q)}: {counted(problem)} weight {problem.name}{where_it_began(e) or ''}{blame}. {problem.remedy}."
    )


class Problem(NamedTuple):
    """What is wrong with weights.

    Attributes:
        name: what the weights are, and the densities that are to blame.
        remedy: what to do.
        bad: which log densities and log weights are to blame.
        flags: which particles have such a weight.
    """

    name: str
    remedy: str
    bad: Callable[[Any], Any]
    flags: np.ndarray


def problem_of(log_weight: Any) -> Problem | None:
    """Return what is wrong with weights, of which a batch may have several populations; None, if nothing is."""
    if is_spread(log_weight):
        # Processes send each other one number, and weights only if something is wrong with them.
        if jnp.all(log_weight < jnp.inf) & jnp.all(jnp.max(log_weight, axis=-1) > -jnp.inf):
            return None
        log_weight = on_this_host(log_weight)
    log_weight = np.asarray(log_weight)
    none = (log_weight == -np.inf).all(axis=-1)
    if np.isnan(log_weight).any():
        return Problem("NaN", "Look for NaN in the arguments and parameters", np.isnan, np.isnan(log_weight))
    if (log_weight == np.inf).any():
        remedy = "A density is infinite, or a factor is"
        return Problem("infinite", remedy, np.isposinf, log_weight == np.inf)
    if none.any():
        flags = np.broadcast_to(none[..., None], log_weight.shape)
        return Problem("zero", "The proposals miss the support of the target", np.isneginf, flags)
    return None


def counted(problem: Problem) -> str:
    """Return how many particles have the problem, as the beginning of a sentence."""
    count, size = int(problem.flags.sum()), problem.flags.size
    return "every particle has" if count == size else f"{count} of {size} particles have"


class Beginning(NamedTuple):
    """The first level after which log Z is not finite; in a scan, the first such step."""

    label: str
    step: str | None

    def __str__(self) -> str:
        step = f" of step {self.step}" if self.step else ""
        return f", from {self.label}{step} on"


def where_it_began(e: Evaluation) -> Beginning | None:
    """Return where log Z was not finite for the first time, if that was at a level."""
    batch = np.ndim(e.log_weight) - 1
    for level in e.levels:
        # Under `grad` of a detached program weights are known, and what carries gradients is not.
        if is_traced(level.log_z_increment):
            continue
        increment = np.asarray(level.log_z_increment)
        bad = ~np.isfinite(increment) & used_steps(level, increment.shape)
        if not bad.any():
            continue
        steps = bad.reshape(-1, *bad.shape[batch:]).any(axis=0)
        return Beginning(level.label, step_of(int(steps.argmax()), steps.shape) if steps.ndim else None)
    return None


def step_of(index: int, shape: tuple[int, ...]) -> str:
    """Return which step of a scan it is, counted from one; of scans in scans, of each.

    Example:
        >>> from steelyard.engines.degenerate import step_of
        >>> step_of(6, (10,)), step_of(6, (2, 5))
        ('7 of 10', '2, 2 of 2, 5')
    """
    place = ", ".join(str(i + 1) for i in np.unravel_index(index, shape))
    return f"{place} of {', '.join(map(str, shape))}"


def _blame(again: Callable[[Looker], Any], bad: Callable[[Any], Any], count: int) -> str:
    """Return the first density that as many particles have trouble with, if there is one outside of loops."""
    found: list[str] = []

    def look(q: Program, tau0: Any, e: Evaluation) -> None:
        for a, rho in e.log_density.items():
            if not found and not is_traced(rho) and bad(np.asarray(rho, float)).sum() >= count:
                found.append(f"; the density at {a!r} in {describe(q)} is the first to blame")

    again(look)
    return found[0] if found else ""
