"""Which density depends on which variables, and which densities therefore need not be computed again.

A propose whose proposal moved some variables of the same target compares two densities of which most terms are the
same numbers. They are taken over, and left out of the weight, in which they would cancel. So are the quantities that
the target returns, as far as none of their variables moved: what is expensive, return it, and it is computed once. The
program is traced once, to equations, of which every propose runs those that it needs. One Gibbs update costs its Markov
blanket.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from rich.table import Table
from rich.text import Text

from steelyard.language.addresses import Previous
from steelyard.language.programs import Primitive, Program, Programmable, program
from steelyard.language.rewrite import marginal
from steelyard.language.state import run
from steelyard.maps import Domain, Map
from steelyard.output import Encodable, rendered
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.jaxprs import Slices
from steelyard.semantics.values import Values
from steelyard.types import is_traced


@dataclass(frozen=True, eq=False)
class Provenance:
    """Where the densities of an evaluation are from: a program at arguments, and the variables replaced since then.

    `variables` tells whether those that the program returns as they are count among the quantities that are kept.
    """

    f: Primitive
    c0: Values
    replaced: frozenset[str] = frozenset()
    variables: bool = False

    def without(self, addresses: Any) -> "Provenance":
        """Return the provenance after variables were replaced."""
        return replace(self, replaced=self.replaced | frozenset(addresses))


class Source(NamedTuple):
    """The program that all densities of an evaluation are of, and whether the evaluation has its value."""

    f: Primitive
    returned: bool


def source_of(e: Evaluation, c0: Values) -> Source | None:
    """Return the program that all densities of an evaluation are of, if there is one."""
    known = e.provenance
    if known is None or known.c0 is not c0 or known.replaced:
        return None
    return Source(known.f, e.returned is not None and [*map(id, e.returned.leaves)] == [*map(id, e.values.leaves)])


def from_source(source: Source | None, e: Evaluation, c0: Values) -> Evaluation:
    """Return the evaluation with what is known of its source."""
    if source is None:
        return e
    return replace(e, provenance=Provenance(source.f, c0), returned=e.values if source.returned else None)


class Equations:
    """A program at a trace with all its variables, as equations that compute some of its densities or all of them.

    Attributes:
        needs: for each address the variables that its density depends on, itself included.
    """

    def __init__(self, f: Primitive, c0: Values, trace: Map[Any]) -> None:
        def of_one_particle(x: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(x.shape[1:], x.dtype, weak_type=getattr(x, "weak_type", False))

        values = {a: jax.tree.map(of_one_particle, v) for a, v in trace.items()}
        own = [of_one_particle(x) for x in c0.varying()]
        seen = []

        def program(values: dict[str, Any], own: list[Any]) -> Any:
            result = run(f, c0.with_varying(own).tree, _never, Map(values), concrete=False)
            leaves, structure = jax.tree.flatten(result.value)
            shared = [not is_traced(x) or any(x is y for y in c0.leaves) for x in leaves]
            constant = [x if stays else None for x, stays in zip(leaves, shared, strict=True)]
            seen.append((structure, constant, result.trace))
            varying = [x for x, stays in zip(leaves, shared, strict=True) if not stays]
            changed = {a: v for a, v in result.trace.items() if not _is_same(v, values[a])}
            return dict(result.log_density), (varying, changed)

        self._c0 = c0
        self._closed, (densities, (_, self._changed)) = jax.make_jaxpr(program, return_shape=True)(values, own)
        # Of the value: its structure, and the leaves that particles share, with None for the others.
        self._structure, self._shared, trace = seen[-1]
        self._addresses, self._origins = tuple(trace), trace.origins
        self._variables = tuple(values)
        self._densities = dict(zip(densities, self._closed.jaxpr.outvars, strict=False))
        self._slices = Slices(self._closed.jaxpr)
        self._owners = [path[0].key for path, _ in jax.tree.leaves_with_path(values)]
        reached = _reach(self._closed.jaxpr, self._owners)
        self.needs = {a: reached(v) for a, v in self._densities.items()}
        # Of the value: the leaves that are variables, or are computed, each by an equation of its own.
        alone = {equation.outvars[0] for equation in self._closed.jaxpr.eqns if len(equation.outvars) == 1}
        candidates = alone.union(self._closed.jaxpr.invars)
        varying = (i for i, x in enumerate(self._shared) if x is None)
        returned = zip(varying, self._closed.jaxpr.outvars[len(densities) :], strict=False)
        known = {i: v for i, v in returned if not isinstance(v, Literal) and v in candidates}
        self._computed = {i: v for i, v in known.items() if v in alone}
        self._returned = {i: reached(v) for i, v in known.items()}

    def unchanged(self, returned: Values | None, replaced: frozenset[str], variables: bool) -> dict[int, Any]:
        """Return the leaves of a value, by their number, that are the same after variables were replaced."""
        if returned is None or returned.structure != self._structure:
            return {}
        among = self._returned if variables else self._computed
        same = (i for i in among if not self._returned[i] & replaced and returned.varies[i])
        return {i: returned.leaves[i] for i in same}

    def computing(self, addresses: list[str], kept: dict[int, Any]) -> tuple[Domain, list[Any], Callable[..., Any]]:
        """Return the program for one particle, with these densities; and the variables and leaves that it is given.

        It is a function of arguments, number, trace, and those leaves of the value that are kept and that it needs. Of
        the value it computes the other ones, and leaves zeros in the place of those that are kept.
        """
        jaxpr, shared = self._closed.jaxpr, self._shared
        results = jaxpr.outvars[len(self._densities) :]
        varying = [i for i, x in enumerate(shared) if x is None]
        changed = results[len(varying) :]
        fresh = {i: v for i, v in zip(varying, results, strict=False) if i not in kept}
        known = {self._computed[i]: i for i in kept if i in self._computed}
        wanted = [self._densities[a] for a in addresses]
        equations, used = self._slices.computing([*wanted, *fresh.values(), *changed], known)
        needed = Domain({a: True for a, v in zip(self._owners, jaxpr.invars, strict=False) if v in used})
        inputs = [v for a, v in zip(self._owners, jaxpr.invars, strict=False) if a in needed]
        inputs += jaxpr.invars[len(self._owners) :]
        given = {i: v for v, i in known.items() if v in used}
        function = jaxpr_as_fun(ClosedJaxpr(equations.replace(invars=[*inputs, *given.values()]), self._closed.consts))
        variables = [a for a in self._variables if a in needed]

        def one(args: Any, particle: Any, tau: Map[Any], given: list[Any]) -> tuple[Any, Any]:
            own = [x for x, varies in zip(jax.tree.leaves(args), self._c0.varies, strict=True) if varies]
            leaves = function(*jax.tree.leaves(({a: tau[a] for a in variables}, own)), *given)
            densities, rest = leaves[: len(addresses)], leaves[len(addresses) :]
            new = dict(zip(fresh, rest, strict=False))
            value = [new.get(i, 0.0) if x is None else x for i, x in enumerate(shared)]
            values = jax.tree.unflatten(jax.tree.structure(self._changed), rest[len(fresh) :])
            return jax.tree.unflatten(self._structure, value), (
                values,
                Map(dict(zip(addresses, densities, strict=True))),
            )

        return needed, [kept[i] for i in given], one

    def trace(self, given: Map[Any], changed: dict[str, Any]) -> Map[Any]:
        """Return the trace of the program, from what it was given and what it made of it."""
        values = {a: changed.get(a, given.values_at[a]) for a in self._addresses}
        return Map(values, {}, self._origins)


class Reuse(NamedTuple):
    """What is known of a program already, densities and leaves of its value, and the equations of the rest."""

    f: Primitive
    known: Map[Any]
    equations: Equations
    kept: dict[int, Any]


class Tables:
    """The equations of the programs that an evaluation runs, each found once."""

    def __init__(self) -> None:
        self._found: dict[Any, Equations | None] = {}

    def reuse(self, f: Program, c0: Values, e1: Evaluation) -> Reuse | None:
        """Return what a target has in common with what is proposed for it; None, if that is nothing.

        Args:
            f: the target.
            c0: what it is called with.
            e1: the evaluation of the proposal.
        """
        origin, before = e1.provenance, e1.log_density
        if origin is None or origin.f != f or origin.c0 is not c0 or not isinstance(f, Primitive):
            return None
        if e1.trace.masks or before.masks:
            return None
        current = {a: e1.trace.of_some(a) for a in e1.trace if not isinstance(a, Previous)}
        shapes = tuple((a, str(jax.tree.map(lambda x: (x.shape[1:], x.dtype), v))) for a, v in current.items())
        # Equations hold the arguments that particles share, and keep them alive.
        mark = f, id(c0), shapes
        if mark not in self._found:
            self._found[mark] = _equations(f, c0, Map(current))
        if (equations := self._found[mark]) is None:
            return None
        # An address is replaced also by a kernel that observes it; its density does not depend on itself then.
        changed = {a for a, needs in equations.needs.items() if (needs | {a}) & origin.replaced}
        same = Domain({a: True for a in equations.needs if a in before and a not in changed})
        kept = equations.unchanged(e1.returned, origin.replaced, origin.variables)
        return Reuse(f, before.restrict(same), equations, kept) if same or kept else None


def _equations(f: Primitive, c0: Values, trace: Map[Any]) -> Equations | None:
    """Return the equations of f; None, if the trace lacks one of its variables."""
    try:
        return Equations(f, c0, trace)
    except _Missing:
        return None


def _is_same(x: Any, y: Any) -> bool:
    """Tell whether two trees hold the very same arrays."""
    (ours, structure), (theirs, other) = jax.tree.flatten(x), jax.tree.flatten(y)
    return structure == other and all(a is b for a, b in zip(ours, theirs, strict=True))


class _Missing(Exception):
    """The trace lacks a variable of the program."""


def _never(site: int, address: str, distribution: Any) -> Any:
    raise _Missing(address)


def _reach(jaxpr: Jaxpr, inputs: list[str]) -> Callable[[Any], frozenset[str]]:
    """Follow the equations from the variables, which are the first inputs, to everything that is computed.

    An equation whose inside is not looked into, such as a loop, passes everything on to all its results.
    """
    reached = {v: frozenset([a]) for v, a in zip(jaxpr.invars, inputs, strict=False)}

    def of(v: Any) -> frozenset[str]:
        return frozenset() if isinstance(v, Literal) else reached.get(v, frozenset())

    for equation in jaxpr.eqns:
        needs = frozenset[str]().union(*map(of, equation.invars))
        reached.update(dict.fromkeys(equation.outvars, needs))
    return of


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
    from steelyard.semantics.engines import Vectorized
    from steelyard.semantics.evaluate import abstractly

    f, c0 = marginal(program(p)), Values.shared(args)
    trace = abstractly(lambda key: Vectorized(key, 1).run(f, c0).trace, f)
    found = _equations(f, c0, trace) if isinstance(f, Primitive) else None
    return Dependencies(sorted(found.needs.items()) if found else ())
