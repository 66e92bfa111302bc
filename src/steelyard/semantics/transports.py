"""The rule for transport: particles pushed through a bijection."""

from dataclasses import replace
from typing import Any

from numpyro.distributions.transforms import Transform

from steelyard.distributions.bijections import is_joint
from steelyard.distributions.coordinates import Placed, Position
from steelyard.distributions.origins import KINDS
from steelyard.errors import AddressError, ArgumentError, MeasureError
from steelyard.language.describe import describe
from steelyard.language.programs import Transport
from steelyard.maps import Domain, Map
from steelyard.semantics.engine import Engine, Premise, Rule, Trace
from steelyard.semantics.facts import Facts
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
        e = yield Premise(q.q, c0, tau0)
        names = tuple(e.trace)
    given = _given_to(q, names, tau0)
    inside, fixed, log_det = _inside(engine, q, given)
    if given and tau0 is not None:
        tau0 = inside | tau0.restrict(Domain({a: True for a in tau0 if a not in given}))
    e = yield Premise(q.q, c0, tau0)
    moved = _check_transported(e.trace, q)
    values = e.trace.restrict(Domain({a: True for a in moved if a not in fixed}))
    asked = [a for a in values if given and isinstance(given[a], Placed)]
    if fresh := values.restrict(Domain({a: True for a in values if a not in asked})):
        after, forward = engine.pushed(q.bijection, fresh)
        fixed |= after
        # Of a variable that is given by its coordinates, or not at all, the density is that of these, or of the draw.
        log_det |= {} if given else forward
    fixed |= values.restrict(Domain(dict.fromkeys(asked, True)))
    rho = {a: e.log_density[a] - log_det[a] if a in log_det else e.log_density.values_at[a] for a in e.log_density}
    mixed = (frozenset(moved),) if is_joint(q.bijection, moved) else ()
    return replace(
        e,
        trace=fixed | e.trace.restrict(Domain({a: True for a in e.trace if a not in moved})),
        log_density=Map(rho, e.log_density.masks),
        log_weight=e.log_weight - sum(log_det.values()) if given else e.log_weight,
        facts=Facts(e.score, partial=e.facts.partial, joint=e.facts.joint + mixed),
    )


def _inside(engine: Engine, q: Transport, given: Trace) -> tuple[Trace, Trace, dict[str, Any]]:
    """Return what is given to the program inside, what is known of the values outside, and log determinants.

    A position is one of the program inside, before the transport: it is passed on as it is, and what is asked for is
    that of the value inside.
    """
    located = {a: x for a, x in given.items() if isinstance(x, Position)}
    asked = {a: x for a, x in given.items() if isinstance(x, Placed)}
    plain = given.restrict(Domain({a: True for a in given if a not in located and a not in asked}))
    _check_whole(q, given, [located, asked, plain])
    inside, log_det = Map[Any](located), {}
    if outside := {**{a: plain[a] for a in plain}, **{a: x.value for a, x in asked.items()}}:
        before, inverse = engine.pushed(q.bijection, Map(outside), back=True)
        inside |= Map({a: replace(asked[a], value=before[a]) if a in asked else before[a] for a in before})
        log_det = {a: -x for a, x in inverse.items() if a not in asked}
    return inside, plain, log_det


def _check_transported(trace: Map[Any], q: Transport) -> list[str]:
    """Return the variables that q transports; raise an error if there are none, or some particle lacks one."""
    names = list(q.only if q.only is not None else trace)
    for a in names:
        if trace.present(a) is not True:
            everywhere = [b for b in trace if trace.present(b) is True]
            raise AddressError(
                f"{describe(q)}: there is no variable {a!r} in every particle; there are "
                f"{', '.join(map(repr, everywhere)) or 'none'}. Name the variables to transport: only=[...]."
            )
        origin = trace.origins.get(a)
        if origin is not None and origin.kind != "density" and isinstance(q.bijection, Transform):
            raise MeasureError(
                f"{describe(q)}: {a!r} is from {origin.name}, which {KINDS[origin.kind]}, but a differentiable "
                f"bijection transports densities. Name the variables to transport: only=[...]."
            )
    if not names:
        raise AddressError(f"{describe(q)}: there is no variable to transport.")
    return sorted(names)


def _given_to(q: Transport, names: tuple[str, ...] | None, tau0: Map[Any] | None) -> Map[Any]:
    """Return the variables of q that are given: all that it transports, or none of them."""
    if tau0 is None or names is None:
        return Map()
    given = [a for a in sorted(names) if tau0.present(a) is True]
    if given and given != sorted(names):
        lacks = [a for a in sorted(names) if a not in given]
        raise AddressError(
            f"{describe(q)}: of the variables that it transports, {', '.join(map(repr, given))} is given and "
            f"{', '.join(map(repr, lacks))} is not, in every particle. Give all of them, or none."
        )
    return tau0.restrict(Domain(dict.fromkeys(given, True)))


def _check_whole(q: Transport, given: Map[Any], groups: list[Any]) -> None:
    """Raise `ArgumentError` if some of the variables that q mixes are to move, and others to be held."""
    if is_joint(q.bijection, list(given)) and sum(map(bool, groups)) > 1:
        raise ArgumentError(
            f"{describe(q)}: the bijection mixes {', '.join(map(repr, given))}, so that a kernel cannot move some of "
            f"them and hold the others. Name all of them, only=[...], or none."
        )
