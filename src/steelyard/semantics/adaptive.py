"""Scans over what is chosen from the particles on the way, such as the next temperature; they end when it is enough."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.language.programs import Adapt, Scan
from steelyard.maps import take
from steelyard.semantics import scans
from steelyard.semantics.engine import Engine
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.record import LevelSummary
from steelyard.semantics.values import Values


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Found:
    """What an adaptive scan chose: for each step what it was given, how many steps there were, and if that was enough.

    Under `jit` there is room for the largest number of steps, and what is beyond `count` means nothing.
    """

    steps: Any
    count: Any
    done: Any
    most: int = field(metadata={"static": True})
    remedy: str = field(metadata={"static": True})

    def says(self) -> str:
        """Return what is to be said of it, where it is known."""
        if np.ndim(self.done):
            reached = f"{int(np.sum(self.done))} of {np.size(self.done)} runs reached the end of their schedule"
            return f"adaptive: {reached}{'' if np.all(self.done) else f'; the others have no result. {self.remedy}'}."
        if not bool(self.done):
            return f"The schedule has not reached its end after {int(self.count)} levels: no result. {self.remedy}."
        chosen = ", ".join(self.steps)
        return f"adaptive: {int(self.count)} levels; chose {chosen} from the particles (sy.found(out) shows them)."


def written_out(engine: Engine, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate an adaptive scan step by step, in Python."""
    loop = Scan(q.step, q.q, jax.tree.map(lambda x: jnp.asarray(x)[None], q.example), q.most)
    carried, arguments = scans.begin(engine, loop, e0, c0)
    state, steps, cumulative = q.state, [], np.arange(e0.particles)
    levels: tuple[LevelSummary, ...] = ()
    while len(steps) < q.most and not state["done"]:
        state, x = q.choose(engine, state, carried, arguments)
        done, _ = scans.advance(engine, loop, x, carried, arguments)
        state = q.learn(state, done.levels)
        carried, arguments = done.evaluation, done.arguments
        cumulative = cumulative if done.ancestors is None else take(cumulative, done.ancestors)
        levels += done.levels
        steps.append(x)
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *steps)
    return finished(q, scans.finish(loop, e0, carried, levels, cumulative, ()), stacked, len(steps), state["done"])


def finished(q: Adapt, e: Evaluation, steps: Any, count: Any, done: Any) -> Evaluation:
    """Return the evaluation, without weights if the steps did not suffice: that must not look like a result."""
    xp = e.log_weight.__array_namespace__()
    found = Found(steps, count, done, q.most, q.remedy)
    log_weight = xp.where(xp.asarray(done), e.log_weight, xp.nan)
    return replace(e, log_weight=log_weight, record=replace(e.record, found=found))
