"""Addresses of maps: renaming, and what `move` does to the versions of the variables that it replaces."""

from dataclasses import replace
from typing import Any

from steelyard.language.addresses import previous, variable
from steelyard.maps import Domain, Map, both, invert
from steelyard.semantics.evaluation import Evaluation


def older(m: Map[Any], moved: Domain) -> Map[Any]:
    """Return the map in which every version of a moved variable has the address of its previous version."""
    stay, go = Map[Any](), Map[Any]()
    for a in m:
        gone = moved.get(variable(a), False)
        stay |= _part(m, a, a, invert(gone))
        go |= _part(m, a, previous(a), gone)
    return stay | go


def younger(tau0: Map[Any], versions: Domain, moved: Domain) -> Map[Any]:
    """Return the map that `older` was applied to: the values of q in a trace of move(f, q)."""
    oldest = {variable(a): max((b for b in versions if variable(b) == variable(a)), key=len) for a in versions}
    result = Map[Any]()
    for a in versions:
        gone = tau0.present(previous(oldest[variable(a)])) if variable(a) in moved else False
        result |= _part(tau0, a, a, invert(gone))
        result |= _part(tau0, previous(a), a, gone)
    return result


def _part(m: Map[Any], old: str, new: str, where: Any) -> Map[Any]:
    mask = both(m.present(old), where)
    if mask is False:
        return Map()
    return Map({new: m[old]}, {} if mask is True else {new: mask})


def under(tau0: Map[Any], addresses: dict[str, str]) -> Map[Any]:
    """Return the part of a trace that has these addresses, under others."""
    return tau0.restrict(Domain({a: True for a in addresses})).rename(addresses.__getitem__)


def renamed(e: Evaluation, addresses: dict[str, str]) -> Evaluation:
    """Return the evaluation under other addresses."""
    new = addresses.__getitem__
    return replace(e, trace=e.trace.rename(new), log_density=e.log_density.rename(new), provenance=None)
