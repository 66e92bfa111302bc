"""Which program the densities of an evaluation are of, from one step of a loop to the next."""

from dataclasses import replace
from typing import NamedTuple

from steelyard.language.programs import Primitive
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.facts import Provenance
from steelyard.semantics.values import Values


class Source(NamedTuple):
    """The program that all densities of an evaluation are of, and whether the evaluation has its value."""

    f: Primitive
    returned: bool


def source_of(e: Evaluation, c0: Values) -> Source | None:
    """Return the program that all densities of an evaluation are of, if there is one."""
    origin, returned = e.facts.provenance, e.facts.returned
    if origin is None or origin.c0 is not c0 or origin.replaced:
        return None
    return Source(origin.f, returned is not None and [*map(id, returned.leaves)] == [*map(id, e.values.leaves)])


def from_source(source: Source | None, e: Evaluation, c0: Values) -> Evaluation:
    """Return the evaluation with what is known of its source."""
    if source is None:
        return e
    returned = e.values if source.returned else None
    return replace(e, facts=replace(e.facts, provenance=Provenance(source.f, c0), returned=returned))
