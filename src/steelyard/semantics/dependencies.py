"""Which density depends on which variables, and which densities therefore need not be computed again.

A propose whose proposal moved some variables of the same target compares two densities of which most terms are the
same numbers. They are taken over and left out of the weight, in which they would cancel; XLA then finds that nobody
uses their computation. One Gibbs update costs its Markov blanket.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend.core import Literal
from rich.console import Console
from rich.table import Table

from steelyard.language.addresses import Previous
from steelyard.language.programs import Primitive, Programmable, Propose, program
from steelyard.language.rewrite import marginal
from steelyard.language.state import run
from steelyard.maps import Domain, Map, dom
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values


@dataclass(frozen=True, eq=False)
class Provenance:
    """Where the densities of an evaluation are from: a program at arguments, and the variables replaced since then."""

    f: Primitive
    c0: Values
    replaced: frozenset[str] = frozenset()

    def without(self, addresses: Any) -> "Provenance":
        """Return the provenance after variables were replaced."""
        return replace(self, replaced=self.replaced | frozenset(addresses))


class Tables:
    """The dependencies of the programs that an evaluation runs, each found once."""

    def __init__(self) -> None:
        self._found: dict[Any, dict[str, frozenset[str]]] = {}

    def unchanged(self, q: Propose, c0: Values, origin: Provenance | None, before: Map[Any], trace: Map[Any]) -> Domain:
        """Return the addresses of q's target whose density is what it was in its proposal.

        Args:
            q: the propose.
            c0: what it is called with.
            origin: the provenance of the densities of its proposal.
            before: these densities.
            trace: the trace of its proposal.
        """
        f = marginal(q.p)
        if origin is None or origin.f != f or origin.c0 is not c0 or not isinstance(f, Primitive):
            return Domain()
        if trace.masks or before.masks:
            return Domain()
        current = {a: v for a, v in trace.items() if not isinstance(a, Previous)}
        mark = f, tuple((a, str(jax.tree.map(lambda x: (x.shape, x.dtype), v))) for a, v in current.items())
        if mark not in self._found:
            self._found[mark] = _dependencies(f, c0, Map(current))
        table = self._found[mark]
        return Domain({a: True for a, needs in table.items() if a in before and not needs & origin.replaced})


def _dependencies(f: Primitive, c0: Values, trace: Map[Any]) -> dict[str, frozenset[str]]:
    """Return for each address of f the variables that its density depends on, itself included."""

    def one(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

    values = {a: jax.tree.map(one, v) for a, v in trace.items()}
    own = [one(x) for x in c0.varying()]

    def densities(values: dict[str, Any], own: list[Any]) -> dict[str, Any]:
        args = c0.with_varying(own).tree
        return dict(run(f, args, _never, Map(values), concrete=False).log_density)

    try:
        return _reach(densities, values, own)
    except _Missing:
        return {}


class _Missing(Exception):
    """The trace lacks a variable of the program."""


def _never(site: int, address: str, distribution: Any) -> Any:
    raise _Missing(address)


def _reach(function: Any, values: dict[str, Any], others: Any) -> dict[str, frozenset[str]]:
    """Follow the equations of the function's jaxpr from the values to the densities.

    An equation whose inside is not looked into, such as a loop, passes everything on to all its results.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(values, others)
    inputs = [path[0].key for path, _ in jax.tree.leaves_with_path(values)]
    reached = {v: frozenset([a]) for v, a in zip(closed.jaxpr.invars, inputs, strict=False)}

    def of(v: Any) -> frozenset[str]:
        return frozenset() if isinstance(v, Literal) else reached.get(v, frozenset())

    for equation in closed.jaxpr.eqns:
        needs = frozenset[str]().union(*map(of, equation.invars))
        reached.update(dict.fromkeys(equation.outvars, needs))
    outputs = [path[0].key for path, _ in jax.tree.leaves_with_path(shapes)]
    return {a: of(v) for a, v in zip(outputs, closed.jaxpr.outvars, strict=True)}


def take_over(e2: Evaluation, rho1: Map[Any], same: Domain) -> Evaluation:
    """Return the evaluation of a target with the densities that are the same in the proposal."""
    if not same:
        return e2

    def take(e: Evaluation) -> Evaluation:
        known = rho1.restrict(same & dom(e.log_density))
        return replace(e, log_density=e.log_density.restrict(dom(e.log_density) - same) | known)

    return replace(take(e2), marginal=None if e2.marginal is None else take(e2.marginal))


class Dependencies(dict[str, frozenset[str]]):
    """For each density, the variables that it depends on; prints as a table.

    Example:
        >>> import steelyard as sy
        >>> sy.Dependencies({"x": frozenset({"z"})})["x"]
        frozenset({'z'})
    """

    def __rich__(self) -> Table:
        variables = sorted({a for needs in self.values() for a in needs})
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("density at")
        for a in variables:
            table.add_column(a, justify="center")
        for a, needs in self.items():
            table.add_row(a, *("●" if b in needs else "" for b in variables))
        return table

    def __repr__(self) -> str:
        console = Console(width=200, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())


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
    from steelyard.semantics.engines import Vectorized
    from steelyard.semantics.evaluate import abstractly

    f, c0 = marginal(program(p)), Values.shared(args)
    trace = abstractly(lambda key: Vectorized(key, 1).run(f, c0).trace, f)
    found = _dependencies(f, c0, trace) if isinstance(f, Primitive) else {}
    return Dependencies(sorted(found.items()))
