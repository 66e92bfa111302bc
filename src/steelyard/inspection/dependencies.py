"""Which density of a program depends on which of its variables, as a table."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from steelyard.compiler.reuse import equations_of
from steelyard.engines.abstract import abstractly
from steelyard.engines.vectorized import Vectorized
from steelyard.language.programs import Primitive, Programmable, program
from steelyard.language.rewrite import marginal
from steelyard.output import Encodable, rendered
from steelyard.semantics.values import Values


class Dependencies(dict[str, frozenset[str]]):
    """For each density, the variables that it depends on; prints as a table.

    Example:
        >>> import steelyard as sy
        >>> sy.Dependencies({"x": frozenset({"z"})})["x"]
        frozenset({'z'})
    """

    def __rich__(self) -> Encodable:
        return Encodable(self._table())

    def _table(self) -> Table:
        variables = sorted({a for needs in self.values() for a in needs})
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("density at")
        for a in variables:
            table.add_column(Text(a), justify="center")
        for a, needs in self.items():
            table.add_row(Text(a), *("●" if b in needs else "" for b in variables))
        return table

    def __repr__(self) -> str:
        return rendered(self._table(), width=200)


def dependencies(p: Programmable, *args: Any) -> Dependencies:
    """Return which density of a program depends on which of its variables, found by tracing it.

    Args:
        p: a target program; of an extended one, its marginal.
        *args: what p is called with, or arrays of the same shapes.

    Returns:
        A dictionary from addresses to sets of addresses, which prints as a table.

    Example:
        >>> import numpyro.distributions as dist, steelyard as sy
        >>> def chain(s):
        ...     a = s.sample("a", dist.Normal(0.0, 1.0))
        ...     b = s.sample("b", dist.Normal(a, 1.0))
        ...     s.observe("x", dist.Normal(b, 1.0), 0.5)
        >>> sy.dependencies(chain)
        density at  a  b
        a           ●
        b           ●  ●
        x              ●
    """
    f, c0 = marginal(program(p)), Values.shared(args)
    trace = abstractly(lambda key: Vectorized(key, 1).run(f, c0).trace, f)
    found = equations_of(f, c0, trace) if isinstance(f, Primitive) else None
    return Dependencies(sorted(found.needs.items()) if found else ())
