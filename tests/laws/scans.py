"""Scans as data: a step is a program with a hole, into which the program so far is put."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from steelyard.language.programs import Primitive, Program, Scan, parts
from tests.laws.finite import Table


@dataclass(frozen=True, eq=False)
class Step:
    """step(q, x): the template with q in the place of the hole, and x as the shift of those tables that have one.

    The hole is the program that the scan begins with, so that the template is a program, too: one step.
    """

    template: Program
    hole: Program

    def __call__(self, q: Program, x: Any) -> Program:
        def at_step(table: Table) -> Table:
            return table if table.shift is None else replace(table, shift=table.shift + x)

        return changed(self.template, at_step, {id(self.hole): q})


def changed(q: Program, change: Callable[[Table], Table], known: dict[int, Any]) -> Program:
    """Return the program with other tables; what is one object before is one object afterwards."""
    if id(q) in known:
        return known[id(q)]
    if isinstance(q, Primitive):
        if id(q.f) not in known:
            known[id(q.f)] = change(q.f)  # type: ignore[arg-type]
        result: Program = replace(q, f=known[id(q.f)])
    else:
        new: dict[str, Any] = {name: changed(part, change, known) for name, part in parts(q)}
        if isinstance(q, Scan):
            template, hole = (changed(part, change, known) for part in (q.step.template, q.step.hole))
            new["step"] = Step(template, hole)
        result = replace(q, **new)
    known[id(q)] = result
    return result
