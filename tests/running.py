"""Running programs compiled, which is faster than op by op unless the same shapes come again."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import steelyard as sy

KEY = jax.random.key(7)


def run(q: Any, *args: Any, particles: int, key: jax.Array = KEY, given: Any = None) -> sy.Evaluation:
    """Evaluate a program under `jit`."""

    def compiled(key: jax.Array, given: Any, args: Any) -> sy.Evaluation:
        return sy.evaluate(q, key, *args, particles=particles, given=given)

    return jax.jit(compiled)(key, given, args)


def universal(q: Any, *args: Any, particles: int, key: jax.Array = KEY, given: Any = None) -> sy.Evaluation:
    """Evaluate a program in the universal engine."""
    return sy.evaluate(q, key, *args, particles=particles, given=given, engine="universal")


def shapes(jaxpr: Any) -> Iterator[tuple[int, ...]]:
    """Yield the shape of every array in a jaxpr and in the jaxprs inside it."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in inner.eqns:
        for variable in [*equation.invars, *equation.outvars]:
            yield np.shape(variable.aval)
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(parameter):
                yield from shapes(parameter)
    yield from (np.shape(v.aval) for v in [*inner.invars, *inner.constvars, *inner.outvars])


def _is_jaxpr(x: Any) -> bool:
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")
