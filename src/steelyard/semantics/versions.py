"""Addresses of maps: renaming, and what `move` does to the versions of the variables that it replaces."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steelyard.language.addresses import Previous, previous, variable
from steelyard.maps import Domain, Map, both, invert
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import Mask


def older(m: Map[Any], moved: Domain) -> Map[Any]:
    """Return the map in which every version of a moved variable has the address of its previous version."""
    stay, go = Map[Any](), Map[Any]()
    for a in m:
        gone = moved.get(variable(a), False)
        stay |= _part(m, a, a, invert(gone))
        go |= _part(m, a, previous(a), gone)
    return stay | go


def younger(tau0: Map[Any], moved: Domain) -> Map[Any]:
    """Return the map that `older` was applied to: the values of q1 in a trace of move(q2, q1)."""
    stay, back = Map[Any](), Map[Any]()
    for a in tau0:
        gone = moved.get(variable(a), False)
        stay |= _part(tau0, a, a, invert(gone))
        if isinstance(a, Previous):
            back |= _part(tau0, a, a.of, gone)
    return stay | back


def _part(m: Map[Any], old: str, new: str, where: Mask) -> Map[Any]:
    mask = both(m.present(old), where)
    if mask is False:
        return Map()
    return Map({new: m.values_at[old]}, {} if mask is True else {new: mask}, {new: m.origins.get(old)})


def under(tau0: Map[Any], addresses: dict[str, str]) -> Map[Any]:
    """Return the part of a trace that has these addresses, under others."""
    return tau0.restrict(Domain({a: True for a in addresses})).rename(addresses.__getitem__)


def renamed(e: Evaluation, new: Callable[[str], str]) -> Evaluation:
    """Return the evaluation under other addresses; of what was kept, that of addresses which it still has."""
    kernel = None if e.kernel is None else renamed(e.kernel, new)
    kept = tuple(history.rename(lambda a: new(a) if a in e.log_density else a) for history in e.histories)
    trace, log_density = e.trace.rename(new), e.log_density.rename(new)
    joint = tuple(frozenset(map(new, group)) for group in e.joint)
    return replace(
        e,
        trace=trace,
        log_density=log_density,
        kernel=kernel,
        histories=kept,
        provenance=None,
        returned=None,
        joint=joint,
    )
