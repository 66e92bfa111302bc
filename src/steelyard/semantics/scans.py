"""What a scan means: its steps one after the other, each from the evaluation of those before it."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import GrammarError, LoopStructureError
from steelyard.estimates.ancestry import Kept
from steelyard.language.addresses import Previous
from steelyard.language.describe import describe
from steelyard.language.programs import Carried, Detach, Program, Scan, program, subprograms
from steelyard.language.rewrite import target
from steelyard.maps import Domain, Map, dom, take
from steelyard.semantics import conditions
from steelyard.semantics.engine import Engine
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.levels import detached_log_density
from steelyard.semantics.provenance import Source, source_of
from steelyard.semantics.record import Record
from steelyard.semantics.values import Values, dense, is_static


class Step(NamedTuple):
    """What one step leaves: particles and the arguments that belong to them, and what is recorded of it."""

    evaluation: Evaluation
    arguments: Values
    levels: Any
    kept: tuple[dict[str, Any], Any]
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
    arguments = arguments.reindex(after.ancestors)
    new = after if q.keep is None else _newest(after)
    if before.facts.detached_log_density is not None:
        rho = detached_log_density(engine, target(built), after, arguments)
        new = replace(new, facts=replace(new.facts, detached_log_density=rho))
    conditions.check_kept(new.trace, q)
    return Step(carry(new), arguments, after.levels, kept_of(q, new), after.ancestors), source


def kept_of(q: Scan, e: Evaluation) -> tuple[dict[str, Any], Any]:
    """Return what q keeps of the particles between two steps: some variables, and the weights; nothing, if None."""
    return {a: e.trace[a] for a in q.keep or ()}, None if q.keep is None else e.log_weight


def begin(engine: Engine, q: Scan, e0: Evaluation, c0: Values) -> tuple[Evaluation, Values]:
    """Return the particles and the arguments that go into the first step."""
    conditions.check_kept(e0.trace, q)
    arguments = c0.reindex(e0.ancestors)
    carried = carry(e0)
    if q.length and _detaches(q.build(Carried(), 0)):
        rho = detached_log_density(engine, target(q.q), e0, arguments)
        carried = replace(carried, facts=replace(carried.facts, detached_log_density=rho))
    return carried, arguments


def finish(
    q: Scan, e0: Evaluation, last: Evaluation, levels: Any, ancestors: Any, kept: tuple[Kept, ...]
) -> Evaluation:
    """Return the evaluation of the whole scan."""
    before = e0.record if ancestors is None else e0.record.reindex(ancestors)
    record = replace(before, levels=before.levels + levels, loss=last.loss, histories=before.histories + kept)
    return replace(last, record=record, facts=replace(last.facts, detached_log_density=None))


def without_steps(q: Scan, e0: Evaluation) -> Evaluation:
    """Return the evaluation of a scan of no steps, whose history is what it begins with."""
    if q.keep is None:
        return e0
    conditions.check_kept(e0.trace, q)
    xp, (first, w) = e0.log_weight.__array_namespace__(), kept_of(q, e0)
    first = {a: dense(x) for a, x in first.items()} if isinstance(w, np.ndarray) else first
    index = xp.arange(e0.particles)
    values, log_weight, ancestors = jax.tree.map(lambda x: x[None][:0], (first, w, index))
    kept = Kept(first, values, w, log_weight, ancestors, index)
    return replace(e0, record=replace(e0.record, histories=(*e0.record.histories, kept)))


def unrolled(engine: Engine, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
    """Evaluate a scan step by step, in Python."""
    if q.length == 0:
        return without_steps(q, e0)
    carried, arguments = begin(engine, q, e0, c0)
    cumulative = index = np.arange(e0.particles)
    levels, values, steps, density = (), [], [], steady(q)
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
        every = [({a: dense(x) for a, x in trace.items()}, w) for trace, w in (kept_of(q, e0), *values)]
        history = jax.tree.map(lambda *xs: np.stack(xs), *every[1:])
        kept = (Kept(every[0][0], history[0], e0.log_weight, history[1], np.stack(steps), index),)
    return finish(q, e0, carried, levels, cumulative, kept)


def prepared(engine: Engine, q: Scan, carried: Evaluation, after: Evaluation) -> Evaluation:
    """Return what goes into the first step in the form in which it goes into every other one.

    Raises:
        LoopStructureError: a step leaves something else.
    """
    carried = with_factors_of(q, carried, after)
    # What one step drops is missing from then on.
    fixed, partial, joint = carried.fixed and after.fixed, after.facts.partial, after.facts.joint
    carried = alike(carried, after, engine.log_one)
    carried = replace(carried, facts=replace(carried.facts, fixed=fixed, partial=partial, joint=joint))
    # From the second step on values are from the distributions of the step.
    carried = replace(carried, trace=replace(carried.trace, origins=after.trace.origins))
    # What the step leaves are shapes, and stay shapes.
    check_structure(q, carried, jax.eval_shape(lambda e: alike(e, carried, engine.log_one), after))
    return carried


def with_factors_of(q: Scan, carried: Evaluation, after: Evaluation) -> Evaluation:
    """Return what goes into the first step of a filter with a factor of one for what its steps are first to observe."""
    densities = after.log_density
    new = [a for a in densities if a not in carried.log_density and a not in after.trace]
    if q.keep is None or not new:
        return carried
    ones = {a: jnp.zeros_like(densities[a]) for a in new}
    # What only some particles observe, none has observed yet.
    nowhere = {a: jnp.zeros_like(x) for a, x in densities.masks.items() if a in new}
    return replace(carried, log_density=carried.log_density | Map(ones, nowhere))


def carry(e: Evaluation) -> Evaluation:
    """Return what goes round in a loop: the particles, without what only concerns the step that made them."""
    loss = jnp.asarray(e.loss, float) if isinstance(e.log_weight, jax.Array) else e.loss
    return replace(e.finished(), record=Record(loss=loss))


def steady(q: Scan) -> Program | None:
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
    facts = replace(e.facts, partial=e.facts.partial or drops)
    return replace(e, trace=newest(e.trace), log_density=newest(e.log_density), facts=facts)


def alike(e: Evaluation, other: Evaluation, log_one: Any) -> Evaluation:
    """Return e with an array wherever the other has one that differs between particles."""
    score = log_one if e.score is None and other.score is not None else e.score
    values = e.values
    if values.structure == other.values.structure:
        values = values.varying_like(other.values, e.particles)
    return replace(e, values=values, facts=replace(e.facts, score=score))


def _detaches(q: Program) -> bool:
    """Tell whether a step detaches the program so far."""
    detached = (part for part in subprograms(q) if isinstance(part, Detach))
    return any(isinstance(part, Carried) for outer in detached for part in subprograms(outer))


def check_structure(q: Scan, before: Evaluation, after: Evaluation) -> None:
    """Raise `LoopStructureError` unless a step of q leaves what it finds, in form."""
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
            "filter; begin with a program that samples what the step samples; or write the loop out in Python."
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
