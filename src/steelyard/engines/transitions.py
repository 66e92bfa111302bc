"""The transitions of a filter, read off its program: what backward sampling needs to know of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from steelyard.compiler.equations import Slices, reach
from steelyard.engines.single import Single
from steelyard.errors import AddressError, ArgumentError, GrammarError
from steelyard.estimates.smoothing import Equations, Transitions
from steelyard.language.describe import describe
from steelyard.language.programs import Carried, Compose, Detach, Move, Program, Resample, Scan
from steelyard.language.rewrite import target
from steelyard.maps import Map, dom, select
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values


def filter_of(q: Program, engine: str) -> Scan:
    """Return the scan that smoothing is asked for.

    Raises:
        GrammarError: the program is none, or keeps nothing.
        ArgumentError: the engine runs programs that need not have equations.
    """
    if engine == "universal":
        raise ArgumentError('evaluate(..., smoothing=True) reads transitions off equations: use engine="vectorized".')
    scan = q
    while isinstance(scan, Resample | Detach):
        scan = scan.q
    if not isinstance(scan, Scan) or scan.keep is None or scan.length == 0:
        raise GrammarError(
            f"evaluate(..., smoothing=True) is for a filter, scan(step, q, xs, keep=[...]), of at least one step, with "
            f"all variables of the step in keep; got {describe(q)}."
        )
    return scan


def with_transitions(out: Evaluation, q: Scan, c0: Values) -> Evaluation:
    """Return the evaluation of a filter that knows how it goes from one step to the next."""
    kept = out.histories[-1]
    variables = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], kept.first))
    transitions = _transitions(q, c0, variables)
    return replace(out, record=replace(out.record, transitions=transitions))


def _transitions(q: Scan, c0: Values, variables: dict[str, Any]) -> Transitions:
    begin = _target(q.q, q)

    def first(variables: dict[str, Any]) -> Values:
        e = Single().run(begin, c0, Map(variables))
        _check_addresses(e, variables, q, "the program before the first step")
        return jax.tree.map(jnp.asarray, e.values)

    def step(x: Any, before: Values, variables: dict[str, Any]) -> tuple[Values, dict[str, Any]]:
        e = Single().run(_transition(q, x), before.as_arguments(), Map(variables))
        _check_addresses(e, variables, q, "a step")
        rho = e.log_density
        return jax.tree.map(jnp.asarray, e.values), {
            a: jnp.asarray(select(mask, rho[a], 0.0)) for a, mask in dom(rho).items()
        }

    x = jax.eval_shape(lambda: jax.tree.map(lambda x: jnp.asarray(x)[0], q.xs))
    beginning, before = jax.make_jaxpr(first, return_shape=True)(variables)
    closed = jax.make_jaxpr(step)(x, before, variables)
    leaves = [len(jax.tree.leaves(part)) for part in (x, before)]
    mine = closed.jaxpr.invars[leaves[0] : sum(leaves)]
    others = closed.jaxpr.invars[sum(leaves) :]
    marks = reach(
        closed.jaxpr,
        {v: frozenset([str(n)]) for n, v in enumerate(mine)} | {v: frozenset(["variables"]) for v in others},
    )
    values, terms = closed.jaxpr.outvars[: leaves[1]], closed.jaxpr.outvars[leaves[1] :]
    own = {str(n) for n in range(leaves[1])} - _common(beginning.jaxpr, [marks(v) for v in values])
    if any(marks(v) & own for n, v in enumerate(values) if str(n) in own):
        raise GrammarError(
            f"{describe(q)}: what a step returns depends on what the step before it returned, and not only on the "
            f"variables that it samples. Backward sampling would take a later step for one of another past. Let the "
            f"step return what it sampled; a parameter that stays the same needs a filter without it."
        )
    part = Slices(closed.jaxpr)
    value, density = (part.computing(vs)[0] for vs in (values, [v for v in terms if marks(v) & own]))
    xs = jax.tree.map(jnp.asarray, q.xs)
    return Transitions(
        Equations(beginning.consts, beginning.jaxpr),
        Equations(closed.consts, value),
        Equations(closed.consts, density),
        xs,
    )


def _common(beginning: Any, marks: list[frozenset[str]]) -> set[str]:
    """Return the parts of what programs return that are the same for all particles: data, and what is counted."""
    of_first = reach(beginning, {v: frozenset(["variables"]) for v in beginning.invars})
    common = {str(n) for n, v in enumerate(beginning.outvars) if not of_first(v)}
    while True:
        fewer = {n for n in common if marks[int(n)] <= common}
        if fewer == common:
            return common
        common = fewer


def _transition(q: Scan, x: Any) -> Program:
    """Return the program that a step runs after those before it, free of propose and resample."""
    p, later = _target(q.step(Carried(), x), q), []
    while isinstance(p, Move | Compose):
        later.append(p.q2)
        p = p.q1
    if not isinstance(p, Carried) or not later:
        raise GrammarError(
            f"{describe(q)}: a step does not go on from the density so far by a transition, move(f, q), but has one of "
            f"its own. There is nothing to smooth: the particles of the last step are all that there is."
        )
    *later, p = later
    for f in reversed(later):
        p = Compose(f, p)
    return p


def _target(q: Any, scan: Scan) -> Program:
    try:
        return target(q)
    except GrammarError as error:
        raise GrammarError(
            f"{describe(scan)}: smoothing needs the density of the program that the filter begins with, and of each "
            f"step, which is not known here. {error}"
        ) from error


def _check_addresses(e: Evaluation, variables: Mapping[str, Any], q: Scan, where: str) -> None:
    if missing := [a for a in e.trace if a not in variables]:
        raise AddressError(
            f"{describe(q)}: smoothing needs all variables of {where}, and {missing[0]!r} was not kept. Name it as "
            f"well: keep={[*variables, *missing]}."
        )
    if unknown := [a for a in variables if a not in e.trace]:
        raise AddressError(
            f"{describe(q)}: {unknown[0]!r} is kept, but {where} does not sample it. Smoothing is for variables that "
            f"each step samples."
        )
