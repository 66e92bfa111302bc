"""Addresses of maps: renaming, and what `move` does to the versions of the variables that it replaces."""

from dataclasses import replace
from typing import Any

from steelyard.language.addresses import Previous, previous, variable
from steelyard.language.programs import Program
from steelyard.language.rewrite import target
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


class KernelDomains:
    """The variables that kernels replaced in all particles, when they ran last: what to expect of them next time."""

    def __init__(self) -> None:
        self._found: dict[Program, Domain] = {}

    def expected(self, f: Program) -> Domain:
        """Return what f is expected to replace; nothing, if that is not known."""
        try:
            return self._found.get(target(f), Domain())
        except TypeError:
            # Programs that hold arrays cannot be looked up.
            return Domain()

    def remember(self, f: Program, moved: Domain) -> None:
        """Note what f replaced."""
        if all(mask is True for mask in moved.values()):
            try:
                self._found[target(f)] = moved
            except TypeError:
                return


def is_as_expected(moved: Domain, expected: Domain) -> bool:
    """Tell whether the same variables moved, and in all particles those that were expected to."""
    return moved.keys() == expected.keys() and all(moved[a] is True or expected[a] is not True for a in moved)


def _part(m: Map[Any], old: str, new: str, where: Mask) -> Map[Any]:
    mask = both(m.present(old), where)
    if mask is False:
        return Map()
    return Map({new: m.values_at[old]}, {} if mask is True else {new: mask}, {new: m.origins.get(old)})


def under(tau0: Map[Any], addresses: dict[str, str]) -> Map[Any]:
    """Return the part of a trace that has these addresses, under others."""
    return tau0.restrict(Domain({a: True for a in addresses})).rename(addresses.__getitem__)


def older_by(e: Evaluation, moved: Domain) -> Evaluation:
    """Return the evaluation in which every version of a moved variable is its previous version."""

    def new(a: str) -> str:
        return previous(a) if variable(a) in moved else a

    facts = replace(replace(e.facts, kernel=None).rename(new), returned=e.facts.returned)
    if e.facts.provenance is not None:
        facts = replace(facts, provenance=e.facts.provenance.without(moved))
    trace, log_density = older(e.trace, moved), older(e.log_density, moved)
    record = replace(e.record.rename(new), pointwise=older(e.record.pointwise, moved))
    return replace(e, trace=trace, log_density=log_density, record=record, facts=facts)
