"""Programs are evaluated more than once at the same values; what that computes twice is computed once.

XLA merges equal operations, but not in a loop that is differentiated: JAX first moves whatever is the same in all
rounds out of it, every copy on its own, and then the copies look different.
"""

from collections.abc import Hashable
from typing import Any

from jax.extend.core import Jaxpr, JaxprEqn, Literal


def without_repetition(jaxpr: Jaxpr) -> Jaxpr:
    """Return the jaxpr with one equation in place of all that compute the same."""
    known: dict[Hashable, list[Any]] = {}
    same: dict[Any, Any] = {}
    equations = []

    def first(atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else same.get(atom, atom)

    for equation in jaxpr.eqns:
        equation = equation.replace(invars=[first(atom) for atom in equation.invars])
        operation = _operation(equation)
        if operation in known:
            same.update(zip(equation.outvars, known[operation], strict=True))
            continue
        equations.append(equation)
        # An output that nobody needed has no name to refer to.
        if operation is not None and not any(str(variable) == "_" for variable in equation.outvars):
            known[operation] = equation.outvars
    return jaxpr.replace(eqns=equations, outvars=[first(atom) for atom in jaxpr.outvars])


def _operation(equation: JaxprEqn) -> Hashable:
    """Return what equations have in common that compute the same; None, where that cannot be told."""
    inputs = tuple((a.aval, str(a.val)) if isinstance(a, Literal) else a for a in equation.invars)
    operation = (equation.primitive, inputs, tuple(equation.params.items()))
    try:
        hash(operation)
    except TypeError:
        return None
    return None if equation.effects else operation
