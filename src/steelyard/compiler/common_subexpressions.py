"""Programs are evaluated more than once at the same values; what that computes twice is computed once.

XLA merges equal operations, but not in a loop that is differentiated: JAX first moves whatever is the same in all
rounds out of it, every copy on its own, and then the copies look different.

Measured alone (`python -m benchmarks passes`): a training step of annealed variational inference takes
1.16 times as long to compile without it.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal


def eliminate_common_subexpressions(jaxpr: Jaxpr) -> Jaxpr:
    """Return the jaxpr with one equation in place of all that compute the same."""
    known: dict[Hashable, list[Any]] = {}
    used = {id(atom) for equation in jaxpr.eqns for atom in equation.invars}.union(map(id, jaxpr.outvars))
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
        # An output that nobody needed has no variable to refer to.
        if operation is not None and all(id(variable) in used for variable in equation.outvars):
            known[operation] = equation.outvars
    return jaxpr.replace(eqns=equations, outvars=[first(atom) for atom in jaxpr.outvars])


def _operation(equation: JaxprEqn) -> Hashable:
    """Return what equations have in common that compute the same; None, where that cannot be told."""
    inputs = tuple((a.aval, np.asarray(a.val).tobytes()) if isinstance(a, Literal) else a for a in equation.invars)
    operation = (equation.primitive, inputs, tuple(equation.params.items()))
    try:
        hash(operation)
    except TypeError:
        return None
    return None if equation.effects else operation
