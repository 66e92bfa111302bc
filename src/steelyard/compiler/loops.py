"""Loops that are compiled once, also where a program runs outside of `jit`.

Outside of `jit` operations run one by one. JAX has each of them compiled once, but a loop at every call: it takes the
steps of a loop for new whenever they were traced again. Here loops of the same equations are taken for the same.
Programs are traced at every call, so that arrays and numbers that a user has changed meanwhile are seen.

Measured alone (`python -m benchmarks passes`): a filter of five steps, called again outside of `jit`, takes eleven
times as long without it, and each call takes 7 megabytes that are not given back.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jax.extend.random import threefry_prng_impl

from steelyard.types import is_traced

# So many loops stay compiled; each takes some megabytes.
KEPT = 64
# How derivatives are taken does not matter where none is.
_DERIVATIVES = frozenset({"policy", "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"})
# What a reduction computes is there as equations, too.
_SAID_TWICE = frozenset({"computation"})

# What JAX itself makes, which holds functions or can be called: kinds of keys, and meshes.
_WITH_FUNCTIONS = (type(threefry_prng_impl), jax.sharding.Mesh)


def with_compiled_loops(closed: ClosedJaxpr) -> Callable[..., list[Any]] | None:
    """Return the function that these equations compute one by one, whose loops are compiled once.

    None, if there are no loops, or if something is not known yet, as where a gradient is taken.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from steelyard.compiler.loops import with_compiled_loops
        >>> def power(x, n):
        ...     return jax.lax.fori_loop(0, n, lambda i, y: y * x, 1.0)
        >>> with_compiled_loops(jax.make_jaxpr(power)(2.0, 5))(2.0, 5)
        [Array(32., dtype=float32, weak_type=True)]
    """
    jaxpr = closed.jaxpr
    if jaxpr.effects or any(map(is_traced, closed.consts)) or not any(map(_has_loop, jaxpr.eqns)):
        return None

    def run(*args: Any) -> list[Any]:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))
        for equation in jaxpr.eqns:
            inputs = [v for v in equation.invars if not isinstance(v, Literal)]
            alone = jaxpr.replace(constvars=[], invars=inputs, outvars=equation.outvars, eqns=[equation])
            results = _function(alone, equation)(*(known[v] for v in inputs))
            known.update(zip(equation.outvars, results, strict=True))
        return [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]

    return run


def compiled_once(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Return the function that these equations compute, which is compiled as a whole, and once.

    Where something is not known yet, as where a gradient is taken, or it cannot be told whether equations are the same,
    it is compiled at every call.
    """
    jaxpr = closed.jaxpr
    if any(map(is_traced, closed.consts)):
        return jax.jit(jaxpr_as_fun(closed))
    try:
        compiled = _compiled(_Same(jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])))
    except _UnknownError:
        return jax.jit(jaxpr_as_fun(closed))
    return lambda *args: compiled(*closed.consts, *args)


def _function(alone: Jaxpr, equation: JaxprEqn) -> Callable[..., Any]:
    """Return the function of one equation."""
    if _has_loop(equation):
        try:
            return _compiled(_Same(alone))
        except _UnknownError:
            pass
    return jaxpr_as_fun(ClosedJaxpr(alone, ()))


def _has_loop(equation: JaxprEqn) -> bool:
    """Tell whether JAX would compile an equation again whenever it is traced again."""
    if equation.primitive.name in ("scan", "while", "cond"):
        return True
    return any(_has_loop(inner) for jaxpr in _inside(equation) for inner in jaxpr.eqns)


def _inside(equation: JaxprEqn) -> list[Jaxpr]:
    values = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr))
    return [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in values if isinstance(x, Jaxpr | ClosedJaxpr)]


class _Same:
    """Equations, equal to all others that compute the same from the same types of arrays."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self._signature = _signature(jaxpr)
        self._hash = hash(self._signature)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._signature == other._signature


@lru_cache(maxsize=KEPT)
def _compiled(same: _Same) -> Callable[..., Any]:
    return jax.jit(jaxpr_as_fun(ClosedJaxpr(same.jaxpr, ())))


class _UnknownError(Exception):
    """Equations hold something of which it cannot be told whether it is the same."""


def _signature(jaxpr: Jaxpr) -> Hashable:
    """Return all that matters of equations, with numbers in place of variables."""
    numbers: dict[Any, int] = {}

    def atom(v: Any) -> Hashable:
        if isinstance(v, Literal):
            return v.aval, np.asarray(v.val).tobytes()
        return numbers.setdefault(v, len(numbers))

    def typed(variables: Any) -> Hashable:
        return tuple((atom(v), v.aval) for v in variables)

    if jaxpr.constvars or any(map(_is_felt, jaxpr.effects)):
        raise _UnknownError
    equations = tuple(
        (e.primitive, tuple(map(atom, e.invars)), _parameter(_relevant(e.params)), typed(e.outvars)) for e in jaxpr.eqns
    )
    return typed(jaxpr.invars), equations, tuple(map(atom, jaxpr.outvars))


def _is_felt(effect: Any) -> bool:
    """Tell whether an effect is one: that an equation names an axis of a mesh counts as an effect to JAX."""
    return type(effect).__name__ != "NamedAxisEffect"


def _relevant(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name not in _DERIVATIVES | _SAID_TWICE}


def _parameter(value: Any) -> Hashable:
    if isinstance(value, Jaxpr):
        return _signature(value)
    if isinstance(value, ClosedJaxpr):
        # Arrays would have to be compared, and be kept.
        if value.consts:
            raise _UnknownError
        return _signature(value.jaxpr)
    if isinstance(value, tuple | list) and not isinstance(value, _WITH_FUNCTIONS):
        return type(value), tuple(map(_parameter, value))
    if isinstance(value, dict):
        return tuple((name, _parameter(item)) for name, item in value.items())
    # A function of the user may have changed meanwhile, and must not be kept.
    if callable(value) and not isinstance(value, (type, *_WITH_FUNCTIONS)):
        raise _UnknownError
    try:
        hash(value)
    except TypeError:
        raise _UnknownError from None
    # True, 1 and 1.0 are equal, and so are 0.0 and -0.0, but not the same.
    return type(value), value, repr(value) if isinstance(value, float) else None
