"""Scans over what is chosen from the particles on the way, such as the next temperature; they end when it is enough."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.language.programs import Adapt, Scan
from steelyard.maps import take
from steelyard.semantics import loops
from steelyard.semantics.engine import Engine
from steelyard.semantics.evaluation import Evaluation, LevelSummary
from steelyard.semantics.jaxprs import without_gradients
from steelyard.semantics.manual_axes import varying_like_results
from steelyard.semantics.values import Values
from steelyard.types import is_traced


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


def compiled(engine: Any, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate an adaptive scan with `lax.while_loop`. No gradient flows through it."""
    loop = Scan(q.step, q.q, jax.tree.map(lambda x: jnp.asarray(x)[None], q.example), q.most)
    carried, arguments = loops.begin(engine, loop, e0, c0)
    index = jnp.arange(e0.particles)

    def step(e: Evaluation, arguments: Values, state: Any) -> Any:
        state, x = q.choose(engine, state, e, arguments)
        done, _ = loops.advance(engine, loop, x, e, arguments)
        return q.learn(state, done.levels), x, done

    # Traced once to see what a step leaves, and how many keys it uses.
    with engine.counting(0) as used:
        state, x, after = jax.eval_shape(step, carried, arguments, q.state)
    carried = loops.prepared(engine, loop, carried, after.evaluation)
    structure = jax.tree.structure(carried)
    start, keys = engine.used, used()

    def go_on(carry: Any) -> Any:
        number, state, *_ = carry
        return (number < q.most) & ~state["done"]

    def body(carry: Any) -> Any:
        number, state, e, own, score, cumulative, records = carry
        mine = replace(arguments.with_varying(own), score=score)
        with engine.counting(start + number * keys):
            state, x, done = step(e, mine, state)
        new = jax.tree.unflatten(structure, jax.tree.leaves(loops.alike(done.evaluation, e, engine.one)))
        cumulative = cumulative if done.ancestors is None else take(cumulative, done.ancestors)
        records = jax.tree.map(lambda all, one: all.at[number].set(one), records, (x, done.levels))
        return number + 1, state, new, done.arguments.varying(), done.arguments.score, cumulative, records

    def run(carried: Evaluation, own: Any, score: Any) -> Any:
        records = jax.tree.map(lambda x: jnp.full((q.most, *x.shape), _nothing(x.dtype), x.dtype), (x, after.levels))
        start = jax.tree.map(lambda old, new: jnp.asarray(old, new.dtype), q.state, state)
        carry = varying_like_results(body, (jnp.asarray(0), start, carried, own, score, index, records))
        return jax.lax.while_loop(go_on, body, carry)

    run = without_gradients(run)
    count, state, last, _, _, cumulative, (steps, levels) = run(carried, arguments.varying(), arguments.score)
    engine.skip(q.most * keys)
    if not is_traced(count):
        steps, levels = jax.tree.map(lambda x: x[: int(count)], (steps, levels))
    ancestors = None if after.ancestors is None else cumulative
    return _finished(q, loops.finish(loop, e0, last, levels, ancestors, ()), steps, count, state["done"])


def written_out(engine: Engine, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate an adaptive scan step by step, in Python."""
    loop = Scan(q.step, q.q, jax.tree.map(lambda x: jnp.asarray(x)[None], q.example), q.most)
    carried, arguments = loops.begin(engine, loop, e0, c0)
    state, steps, cumulative = q.state, [], np.arange(e0.particles)
    levels: tuple[LevelSummary, ...] = ()
    while len(steps) < q.most and not state["done"]:
        state, x = q.choose(engine, state, carried, arguments)
        done, _ = loops.advance(engine, loop, x, carried, arguments)
        state = q.learn(state, done.levels)
        carried, arguments = done.evaluation, done.arguments
        cumulative = cumulative if done.ancestors is None else take(cumulative, done.ancestors)
        levels += done.levels
        steps.append(x)
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *steps)
    return _finished(q, loops.finish(loop, e0, carried, levels, cumulative, ()), stacked, len(steps), state["done"])


def _nothing(dtype: Any) -> Any:
    return jnp.nan if jnp.issubdtype(dtype, jnp.inexact) else 0


def _finished(q: Adapt, e: Evaluation, steps: Any, count: Any, done: Any) -> Evaluation:
    """Return the evaluation, without weights if the steps did not suffice: that must not look like a result."""
    xp = e.log_weight.__array_namespace__()
    found = Found(steps, count, done, q.most, q.remedy)
    return replace(e, log_weight=xp.where(xp.asarray(done), e.log_weight, xp.nan), found=found)
