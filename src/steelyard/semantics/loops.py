"""Scans: the same step again and again, traced and compiled once."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import GrammarError, LoopStructureError
from steelyard.language.addresses import Previous
from steelyard.language.describe import describe
from steelyard.language.programs import Carried, Detach, Program, Scan, program, subprograms
from steelyard.language.rewrite import target
from steelyard.maps import Domain, Map, dom, take
from steelyard.semantics import conditions
from steelyard.semantics.ancestry import Kept
from steelyard.semantics.dependencies import Source, from_source, source_of
from steelyard.semantics.engine import Engine
from steelyard.semantics.evaluation import Evaluation, dense
from steelyard.semantics.jaxprs import rewritten
from steelyard.semantics.levels import at_rest
from steelyard.semantics.manual_axes import varying_like_results
from steelyard.semantics.products import with_fast_gradients
from steelyard.semantics.repeats import Repeats
from steelyard.semantics.residuals import kept_for_gradients
from steelyard.semantics.sharing import without_repetition
from steelyard.semantics.values import Values, is_static


class Step(NamedTuple):
    """What one step leaves: particles and the arguments that belong to them, and what is recorded of it."""

    evaluation: Evaluation
    arguments: Values
    levels: Any
    kept: dict[str, Any]
    ancestors: Any


def advance(
    engine: Engine, q: Scan, x: Any, before: Evaluation, arguments: Values, density: Program | None = None
) -> tuple[Step, Source | None]:
    """Evaluate one step, and tell which program its densities are of.

    `density` is the program whose density the steps before denote, if it is known.
    """
    so_far = Carried(before, arguments, density)
    built = program(q.step(so_far, x))
    conditions.check_step(built, so_far, q)
    after = engine.run(built, arguments)
    source = source_of(after, arguments)
    if after.ancestors is not None:
        arguments = arguments.reindex(after.ancestors)
    new = after if q.keep is None else _newest(after)
    if before.at_rest is not None:
        new = replace(new, at_rest=at_rest(engine, target(built), after, arguments))
    conditions.check_kept(new.trace, q)
    kept = {a: new.trace[a] for a in q.keep or ()}
    return Step(_carry(new), arguments, after.levels, kept, after.ancestors), source


def begin(engine: Engine, q: Scan, e0: Evaluation, c0: Values) -> tuple[Evaluation, Values]:
    """Return the particles and the arguments that go into the first step."""
    conditions.check_kept(e0.trace, q)
    arguments = c0 if e0.ancestors is None else c0.reindex(e0.ancestors)
    carried = _carry(e0)
    if q.length and _detaches(q.build(Carried(), 0)):
        carried = replace(carried, at_rest=at_rest(engine, target(q.q), e0, arguments))
    return carried, arguments


def finish(
    q: Scan, e0: Evaluation, last: Evaluation, levels: Any, ancestors: Any, kept: tuple[Kept, ...]
) -> Evaluation:
    """Return the evaluation of the whole scan."""
    if ancestors is not None:
        e0 = replace(e0, histories=tuple(history.reindex(ancestors) for history in e0.histories))
    if e0.ancestors is not None:
        ancestors = e0.ancestors if ancestors is None else take(e0.ancestors, ancestors)
    return replace(last, levels=e0.levels + levels, ancestors=ancestors, at_rest=None, histories=e0.histories + kept)


def _without_steps(q: Scan, e0: Evaluation) -> Evaluation:
    """Return the evaluation of a scan of no steps, whose history is what it begins with."""
    if q.keep is None:
        return e0
    conditions.check_kept(e0.trace, q)
    xp = e0.log_weight.__array_namespace__()
    first = {a: dense(e0.trace[a]) if isinstance(e0.log_weight, np.ndarray) else e0.trace[a] for a in q.keep}
    index = xp.arange(e0.particles)
    values, ancestors = jax.tree.map(lambda x: x[None][:0], (first, index))
    return replace(e0, histories=(*e0.histories, Kept(first, values, ancestors, index)))


def unrolled(engine: Engine, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate a scan step by step, in Python."""
    if q.length == 0:
        return _without_steps(q, e0)
    carried, arguments = begin(engine, q, e0, c0)
    cumulative = index = np.arange(e0.particles)
    levels, values, steps, density = (), [], [], _steady(q)
    for number in range(q.length):
        x = jax.tree.map(lambda x: x[number], q.xs)  # noqa: B023
        step, _ = advance(engine, q, x, carried, arguments, density)
        carried, arguments = step.evaluation, step.arguments
        ancestors = index if step.ancestors is None else step.ancestors
        cumulative = take(cumulative, ancestors)
        levels += step.levels
        values.append(step.kept)
        steps.append(ancestors)
    kept = ()
    if q.keep is not None:
        first, *history = ({a: dense(trace[a]) for a in q.keep} for trace in (e0.trace, *values))
        kept = (Kept(first, jax.tree.map(lambda *xs: np.stack(xs), *history), np.stack(steps), index),)
    return finish(q, e0, carried, levels, cumulative, kept)


def rolled(engine: Any, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate a scan with `lax.scan`: same keys, samples and weights as if it were written out."""
    if q.length == 0:
        return _without_steps(q, e0)
    carried, arguments = begin(engine, q, e0, c0)
    first = jax.tree.map(lambda x: x[0], q.xs)
    index = jnp.arange(e0.particles)
    if q.length == 1:
        return _once(engine, q, e0, from_source(source_of(e0, c0), carried, arguments), arguments, first)

    sources, repeats, density = [], [], _steady(q)

    def step(e: Evaluation, arguments: Values, x: Any) -> Step:
        done, source = advance(engine, q, x, e, arguments, density)
        sources.append(source)
        repeats.append(Repeats.of(done.evaluation))
        return done

    def own_arguments(own: list[Any], score: Any) -> Values:
        # What particles share stays what it is: a presence that is a constant of the program must not become an array.
        return replace(arguments.with_varying(own), score=score)

    # Traced once to see what a step leaves, and how many keys it uses.
    with engine.counting(0) as used:
        own = arguments.varying(), arguments.score
        after = jax.eval_shape(lambda e, own, x: step(e, own_arguments(*own), x), carried, own, first)
    resamples = after.ancestors is not None
    carried = prepared(engine, q, carried, after.evaluation)
    once = Repeats.of(carried).common(repeats[0])
    start, keys = engine.used, used()
    source = source_of(e0, c0)
    lasting = source if source == sources[0] else None

    def body(carry: Any, now: Any) -> Any:
        (e, own, score, cumulative), (number, x) = carry, now
        e = once.restore(e)
        mine = own_arguments(own, score)
        with engine.counting(start + number * keys):
            # Densities of the program that every step leaves may be taken over from one step by the next.
            done = step(from_source(lasting, e, mine), mine, x)
        new = alike(done.evaluation, e, engine.one)
        if resamples:
            cumulative = take(cumulative, done.ancestors)
        record = done.levels, done.kept, done.ancestors if q.keep is not None else None
        return (once.remove(new), done.arguments.varying(), done.arguments.score, cumulative), record

    carry = once.remove(carried), arguments.varying(), arguments.score, index if resamples else None
    carry = varying_like_results(lambda carry: body(carry, (0, first))[0], carry)
    body = rewritten(
        body,
        without_repetition,
        with_fast_gradients(own=len(jax.tree.leaves(carry))),
        as_function=kept_for_gradients(q),
    )
    (last, *_, cumulative), (levels, values, steps) = jax.lax.scan(
        body, carry, (jnp.arange(q.length), q.xs), unroll=q.unroll
    )
    engine.skip(q.length * keys)
    last = once.restore(last)
    kept = ()
    if q.keep is not None:
        steps = jnp.broadcast_to(index, (q.length, e0.particles)) if steps is None else steps
        kept = (Kept({a: e0.trace[a] for a in q.keep}, values, steps, index),)
    return finish(q, e0, last, levels, cumulative, kept)


def _once(engine: Engine, q: Scan, e0: Evaluation, carried: Evaluation, arguments: Values, x: Any) -> Evaluation:
    """Evaluate a scan of one step: there is nothing to go round, and it is traced once."""
    done, _ = advance(engine, q, x, carried, arguments, _steady(q))
    _check_structure(q, alike(_carry(carried), done.evaluation, engine.one), done.evaluation)
    levels, values = jax.tree.map(lambda x: jnp.asarray(x)[None], (done.levels, done.kept))
    index = jnp.arange(e0.particles)
    kept = ()
    if q.keep is not None:
        steps = index if done.ancestors is None else done.ancestors
        kept = (Kept({a: e0.trace[a] for a in q.keep}, values, steps[None], index),)
    return finish(q, e0, done.evaluation, levels, done.ancestors, kept)


def prepared(engine: Engine, q: Scan, carried: Evaluation, after: Evaluation) -> Evaluation:
    """Return what goes into the first step in the form in which it goes into every other one.

    Raises:
        LoopStructureError: a step leaves something else.
    """
    # What one step drops is missing from then on.
    fixed = carried.fixed and after.fixed
    carried = replace(alike(carried, after, engine.one), partial=after.partial, fixed=fixed, joint=after.joint)
    # From the second step on values are from the distributions of the step.
    carried = replace(carried, trace=replace(carried.trace, origins=after.trace.origins))
    # What the step leaves are shapes, and stay shapes.
    _check_structure(q, carried, jax.eval_shape(lambda e: alike(e, carried, engine.one), after))
    return carried


def _carry(e: Evaluation) -> Evaluation:
    """Return what goes round in a loop: the particles, without what only concerns the step that made them."""
    loss = jnp.asarray(e.loss, float) if isinstance(e.log_weight, jax.Array) else e.loss
    return Evaluation(
        e.values,
        e.trace,
        e.log_density,
        e.log_weight,
        loss=loss,
        score=e.score,
        at_rest=e.at_rest,
        partial=e.partial,
        fixed=e.fixed,
        joint=e.joint,
    )


def _steady(q: Scan) -> Program | None:
    """Return the program whose density the program so far denotes, if that is the same in all steps."""
    try:
        first, last = target(q.q), target(q.build(Carried(), 0))
    except GrammarError:
        return None
    return first if (isinstance(last, Carried) or last == first) and not isinstance(first, Carried) else None


def _newest(e: Evaluation) -> Evaluation:
    def newest(m: Map[Any]) -> Map[Any]:
        return m.restrict(Domain({a: True for a in m if not isinstance(a, Previous)}))

    drops = any(isinstance(a, Previous) for a in e.log_density)
    return replace(e, trace=newest(e.trace), log_density=newest(e.log_density), partial=e.partial or drops)


def alike(e: Evaluation, other: Evaluation, one: Any) -> Evaluation:
    """Return e with an array wherever the other has one that differs between particles."""
    score = one if e.score is None and other.score is not None else e.score
    values = e.values
    if values.structure == other.values.structure:
        values = values.varying_like(other.values, e.particles)
    return replace(e, score=score, values=values)


def _detaches(q: Program) -> bool:
    """Tell whether a step detaches the program so far."""
    detached = (part for part in subprograms(q) if isinstance(part, Detach))
    return any(isinstance(part, Carried) for outer in detached for part in subprograms(outer))


def _check_structure(q: Scan, before: Evaluation, after: Evaluation) -> None:
    differences = [
        *_compare("samples", dict(before.trace), dict(after.trace)),
        *_compare("has a density at", dict(before.log_density), dict(after.log_density)),
    ]
    if before.values.structure != after.values.structure:
        nothing = after.values.structure == jax.tree.structure(None)
        returned = "nothing" if nothing else after.values.structure
        differences.append(f"returns {returned} in place of {before.values.structure}")
    else:
        differences += _compare("returns", *({"value": list(e.values.leaves)} for e in (before, after)))
    if dom(before.trace).keys() == dom(after.trace).keys() and set(before.trace.masks) != set(after.trace.masks):
        differences.append("changes which variables are present in all particles")
    if differences:
        raise LoopStructureError(
            f"{describe(q)}: a step must leave the addresses, shapes and types that it finds, but it\n"
            + "".join(f"  {difference}\n" for difference in differences)
            + "Use move(f, q) for variables that are sampled again, with prev(f) in the target, or keep=[...] for a "
            "filter; begin with a program that has the addresses of the step; or write the loop out in Python."
        )


def _compare(verb: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    lines = [f"no longer {verb} {a!r}" for a in before if a not in after]
    lines += [f"{verb} {a!r}, which was not there before" for a in after if a not in before]
    for a in before:
        if a in after and (old := _types(before[a])) != (new := _types(after[a])):
            lines.append(f"{verb} {a!r} of {new} in place of {old}")
    return lines


def _types(tree: Any) -> str:
    return ", ".join(
        repr(x) if is_static(x) else f"{jnp.asarray(x).dtype if np.isscalar(x) else x.dtype}{list(np.shape(x))}"
        for x in jax.tree.leaves(tree)
    )
