"""The rolled loop: a scan as `lax.scan`, whose step is traced and compiled once."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from steelyard.ancestors import indices_of, take
from steelyard.arrays.manual_axes import varying_like_results
from steelyard.compiler.common_subexpressions import eliminate_common_subexpressions
from steelyard.compiler.equations import rewritten
from steelyard.compiler.previews import Place, Preview, Stale, form
from steelyard.compiler.products import with_fast_gradients
from steelyard.compiler.rematerialization import rematerialized
from steelyard.compiler.repeats import Repeats
from steelyard.estimates.ancestry import Kept
from steelyard.language.programs import Scan
from steelyard.semantics.engine import Engine
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.provenance import Source, from_source, source_of
from steelyard.semantics.scans import (
    Step,
    advance,
    alike,
    begin,
    carry,
    check_structure,
    finish,
    kept_of,
    prepared,
    steady,
    with_factors_of,
    without_steps,
)
from steelyard.semantics.values import Values


def rolled(engine: Any, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate a scan with `lax.scan`: same keys, samples and weights as if it were written out."""
    if q.length == 0:
        return without_steps(q, e0)
    carried, arguments = begin(engine, q, e0, c0)
    first = jax.tree.map(lambda x: x[0], q.xs)
    if q.length == 1:
        return _once(engine, q, e0, from_source(source_of(e0, c0), carried, arguments), arguments, first)
    loop = _Loop(q, engine.previews.place(), carried, arguments, first, source_of(e0, c0))
    mark = loop.place, q.keep, form((carried, arguments.varying(), arguments.score, first))
    if (remembered := engine.previews.remembered(mark)) is not None:
        try:
            return _run(engine, loop, e0, remembered, compare=True)
        except Stale:
            engine.previews.forget()
    preview = _preview(engine, loop)
    filled = with_factors_of(q, carried, preview.after.evaluation)
    if filled is not carried:
        loop = loop._replace(carried=filled)
        preview = _preview(engine, loop)
    return _run(engine, loop, e0, engine.previews.remember(mark, preview))


class _Loop(NamedTuple):
    """A scan, its place among other loops, what goes into its first step, and which program that has densities of."""

    q: Scan
    place: Place
    carried: Evaluation
    arguments: Values
    first: Any
    source: Source | None

    def own_arguments(self, own: list[Any], score: Any) -> Values:
        # What particles share stays what it is: a presence that is a constant of the program must not become an array.
        return replace(self.arguments.with_varying(own), score=score)

    def step(self, engine: Any, e: Evaluation, arguments: Values, x: Any) -> tuple[Step, Source | None]:
        with engine.previews.inside(self.place):
            return advance(engine, self.q, x, e, arguments, steady(self.q))


def _preview(engine: Any, loop: _Loop) -> Preview:
    """Trace a step to see what it leaves, and how many keys it uses."""
    seen: list[tuple[Repeats, bool]] = []

    def step(e: Evaluation, own: Any, x: Any) -> Step:
        done, source = loop.step(engine, e, loop.own_arguments(*own), x)
        # Inside of a preview the source of what goes in is not known: it is compared when the loop runs.
        seen.append((Repeats.of(done.evaluation), source == loop.source if loop.source else source is not None))
        return done

    own = loop.arguments.varying(), loop.arguments.score
    with engine.counting(0) as used, engine.previews.previewing():
        after = jax.eval_shape(step, loop.carried, own, loop.first)
    (repeats, keeps_source), *_ = seen
    return Preview(after, repeats, keeps_source, used())


def _run(engine: Any, loop: _Loop, e0: Evaluation, preview: Preview, *, compare: bool = False) -> Evaluation:
    """Evaluate the steps, given a preview of one; with `compare`, raise `Stale` where it leaves something else."""
    q, arguments, index = loop.q, loop.arguments, jnp.arange(e0.particles)
    after, resamples = preview.after, preview.after.ancestors is not None
    carried = prepared(engine, q, loop.carried, after.evaluation)
    once = Repeats.of(carried)
    once = once.common(preview.repeats) if "repeats" in engine.passes else once.none()
    start = engine.used
    lasting = loop.source if preview.keeps_source else None

    def body(carry: Any, now: Any) -> Any:
        (e, own, score, cumulative), (number, x) = carry, now
        e = once.restore(e)
        mine = loop.own_arguments(own, score)
        with engine.counting(start + number * preview.keys) as used:
            # Densities of the program that every step leaves may be taken over from one step by the next.
            done, source = loop.step(engine, from_source(lasting, e, mine), mine, x)
        known = lasting is None or source == lasting
        if compare and not (known and preview.fits(done, Repeats.of(done.evaluation), used())):
            raise Stale
        new = alike(done.evaluation, e, engine.log_one)
        if resamples:
            cumulative = take(cumulative, done.ancestors)
        record = done.levels, done.kept, indices_of(done.ancestors) if q.keep is not None else None
        return (once.remove(new), done.arguments.varying(), done.arguments.score, cumulative), record

    carry = once.remove(carried), arguments.varying(), arguments.score, index if resamples else None
    carry = varying_like_results(lambda carry: body(carry, (0, loop.first))[0], carry)
    numbered = jnp.arange(q.length), q.xs
    if engine.previews.active:
        (last, *_, cumulative), (levels, values, steps) = _in_form(q, carry, after)
    else:
        rewrites = {
            "common subexpressions": eliminate_common_subexpressions,
            "products": with_fast_gradients(own=len(jax.tree.leaves(carry))),
        }
        body = rewritten(
            body,
            *(rewrite for name, rewrite in rewrites.items() if name in engine.passes),
            as_function=rematerialized(q, engine.passes),
        )
        (last, *_, cumulative), (levels, values, steps) = jax.lax.scan(body, carry, numbered, unroll=q.unroll)
    engine.skip(q.length * preview.keys)
    last = once.restore(last)
    kept = ()
    if q.keep is not None:
        steps = jnp.broadcast_to(index, (q.length, e0.particles)) if steps is None else steps
        first, w = kept_of(q, e0)
        kept = (Kept(first, values[0], w, values[1], steps, index),)
    return finish(q, e0, last, levels, cumulative, kept)


def _in_form(q: Scan, carry: Any, after: Step) -> Any:
    """Return what a loop would leave, in form: its step is not traced once more to see what a loop around it leaves."""

    def of_every_step(x: Any) -> Any:
        return jnp.zeros((q.length, *x.shape), x.dtype)

    record = after.levels, after.kept, indices_of(after.ancestors) if q.keep is not None else None
    # Arrays that are none of those that went in, as those of a loop are.
    return jax.lax.optimization_barrier(carry), jax.tree.map(of_every_step, record)


def _once(engine: Engine, q: Scan, e0: Evaluation, carried: Evaluation, arguments: Values, x: Any) -> Evaluation:
    """Evaluate a scan of one step: there is nothing to go round, and it is traced once."""
    done, _ = advance(engine, q, x, carried, arguments, steady(q))
    before = with_factors_of(q, alike(carry(carried), done.evaluation, engine.log_one), done.evaluation)
    check_structure(q, before, done.evaluation)
    levels, values = jax.tree.map(lambda x: jnp.asarray(x)[None], (done.levels, done.kept))
    index = jnp.arange(e0.particles)
    kept = ()
    if q.keep is not None:
        steps = index if done.ancestors is None else indices_of(done.ancestors)
        first, w = kept_of(q, e0)
        kept = (Kept(first, values[0], w, values[1], steps[None], index),)
    return finish(q, e0, done.evaluation, levels, done.ancestors, kept)
