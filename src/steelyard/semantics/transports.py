"""The rule for transport: particles pushed through a bijection."""

from dataclasses import replace
from typing import Any

from steelyard.language.bijections import is_joint
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
    after, log_det = Map[Any](), {}
    if given and tau0 is not None:
        after = tau0.restrict(Domain(dict.fromkeys(given, True)))
        before, inverse = engine.pushed(q.bijection, after, back=True)
        log_det = {a: -x for a, x in inverse.items()}
        tau0 = before | tau0.restrict(Domain({a: True for a in tau0 if a not in given}))
    e = yield q.q, c0, tau0
    moved = conditions.check_transported(e.trace, q)
    if not given:
        after, log_det = engine.pushed(q.bijection, e.trace.restrict(Domain(dict.fromkeys(moved, True))))
    rho = {a: e.log_density[a] - log_det[a] if a in log_det else e.log_density.values_at[a] for a in e.log_density}
    return replace(
        e,
        trace=after | e.trace.restrict(Domain({a: True for a in e.trace if a not in moved})),
        log_density=Map(rho, e.log_density.masks),
        log_weight=e.log_weight - sum(log_det.values()) if given else e.log_weight,
        joint=(*e.joint, frozenset(moved)) if is_joint(q.bijection, moved) else e.joint,
        kernel=None,
        marginal=None,
        fixed=False,
        at_rest=None,
        provenance=None,
    )
