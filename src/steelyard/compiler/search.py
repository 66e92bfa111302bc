"""The adaptive scan as `lax.while_loop`, whose step is traced and compiled once."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from steelyard.arrays.manual_axes import varying_like_results
from steelyard.compiler.equations import without_gradients
from steelyard.language.programs import Adapt, Scan
from steelyard.maps import take
from steelyard.semantics import scans
from steelyard.semantics.adaptive import finished
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values
from steelyard.types import is_traced


def compiled(engine: Any, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate an adaptive scan with `lax.while_loop`. No gradient flows through it."""
    loop = Scan(q.step, q.q, jax.tree.map(lambda x: jnp.asarray(x)[None], q.example), q.most)
    carried, arguments = scans.begin(engine, loop, e0, c0)
    index, place = jnp.arange(e0.particles), engine.previews.place()

    def step(e: Evaluation, arguments: Values, state: Any) -> Any:
        state, x = q.choose(engine, state, e, arguments)
        with engine.previews.inside(place):
            done, _ = scans.advance(engine, loop, x, e, arguments)
        return q.learn(state, done.levels), x, done

    # Traced once to see what a step leaves, and how many keys it uses.
    with engine.counting(0) as used, engine.previews.previewing():
        state, x, after = jax.eval_shape(step, carried, arguments, q.state)
    carried = scans.prepared(engine, loop, carried, after.evaluation)
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
        new = jax.tree.unflatten(structure, jax.tree.leaves(scans.alike(done.evaluation, e, engine.log_one)))
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
    else:
        # Of a schedule in a schedule, the inner one knows of both: what was never written is False.
        made = jnp.arange(q.most) < count
        levels = tuple(replace(level, used=made) if level.used is None else level for level in levels)
    ancestors = None if after.ancestors is None else cumulative
    return finished(q, scans.finish(loop, e0, last, levels, ancestors, ()), steps, count, state["done"])


def _nothing(dtype: Any) -> Any:
    return jnp.nan if jnp.issubdtype(dtype, jnp.inexact) else 0
