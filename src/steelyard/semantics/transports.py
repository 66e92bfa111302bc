"""The rule for transport: particles pushed through a bijection."""

from dataclasses import replace
from typing import Any

from steelyard.language.bijections import is_joint
from steelyard.language.coordinates import Placed, Position
from steelyard.language.programs import Transport
from steelyard.maps import Domain, Map
from steelyard.semantics import conditions
from steelyard.semantics.engine import Engine, Trace
from steelyard.semantics.rules import Rule
from steelyard.semantics.values import Values


def transport(engine: Engine, q: Transport, c0: Values, tau0: Trace | None) -> Rule:
    """Transport: q's particles, pushed through a bijection T.

    c, tau, rho, w <- q(c0)[T^-1(tau0)]
    ------------------------------------------------------------------------
    c, T(tau), rho / |det T'(tau)|, w <- transport(T, q)(c0)[tau0]

    where w has the same factor, if values were substituted: these count as if they were observed.
    """
    names = q.only
    if names is None and tau0 is not None:
        # Which of the values are q's.
        e = yield q.q, c0, tau0
        names = tuple(e.trace)
    given = conditions.given_to(q, names, tau0)
    inside, fixed, log_det = _inside(engine, q, given)
    if given and tau0 is not None:
        tau0 = inside | tau0.restrict(Domain({a: True for a in tau0 if a not in given}))
    e = yield q.q, c0, tau0
    moved = conditions.check_transported(e.trace, q)
    values = e.trace.restrict(Domain({a: True for a in moved if a not in fixed}))
    asked = [a for a in values if given and isinstance(given[a], Placed)]
    if fresh := values.restrict(Domain({a: True for a in values if a not in asked})):
        after, forward = engine.pushed(q.bijection, fresh)
        fixed |= after
        # Of a variable that is given by its coordinates, or not at all, the density is that of these, or of the draw.
        log_det |= {} if given else forward
    fixed |= values.restrict(Domain(dict.fromkeys(asked, True)))
    rho = {a: e.log_density[a] - log_det[a] if a in log_det else e.log_density.values_at[a] for a in e.log_density}
    return replace(
        e,
        trace=fixed | e.trace.restrict(Domain({a: True for a in e.trace if a not in moved})),
        log_density=Map(rho, e.log_density.masks),
        log_weight=e.log_weight - sum(log_det.values()) if given else e.log_weight,
        joint=(*e.joint, frozenset(moved)) if is_joint(q.bijection, moved) else e.joint,
        kernel=None,
        marginal=None,
        fixed=False,
        at_rest=None,
        provenance=None,
        returned=None,
    )


def _inside(engine: Engine, q: Transport, given: Trace) -> tuple[Trace, Trace, dict[str, Any]]:
    """Return what is given to the program inside, what is known of the values outside, and log determinants.

    A position is one of the program inside, before the transport: it is passed on as it is, and what is asked for is
    that of the value inside.
    """
    located = {a: x for a, x in given.items() if isinstance(x, Position)}
    asked = {a: x for a, x in given.items() if isinstance(x, Placed)}
    plain = given.restrict(Domain({a: True for a in given if a not in located and a not in asked}))
    conditions.check_whole(q, given, [located, asked, plain])
    inside, log_det = Map[Any](located), {}
    if outside := {**{a: plain[a] for a in plain}, **{a: x.value for a, x in asked.items()}}:
        before, inverse = engine.pushed(q.bijection, Map(outside), back=True)
        inside |= Map({a: replace(asked[a], value=before[a]) if a in asked else before[a] for a in before})
        log_det = {a: -x for a, x in inverse.items() if a not in asked}
    return inside, plain, log_det
