"""Functions as equations that can be rewritten, before they are differentiated and compiled."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from steelyard.types import stop_gradient


def rewritten(
    f: Callable[..., Any],
    *rewrites: Callable[[Jaxpr], Jaxpr],
    as_function: Callable[[ClosedJaxpr], Callable[..., Any]] = jaxpr_as_fun,
) -> Callable[..., Any]:
    """Return the function of pytrees of arrays that computes what is left of f after the rewrites, in their order.

    `as_function` makes a function of arrays of the equations that are left.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from steelyard.semantics.jaxprs import rewritten
        >>> from steelyard.semantics.sharing import without_repetition
        >>> f = rewritten(lambda x: jnp.sin(x) * jnp.sin(x), without_repetition)
        >>> str(jax.make_jaxpr(f)(1.0)).count("sin")
        1
    """

    def run(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
        jaxpr = closed.jaxpr
        for rewrite in rewrites:
            jaxpr = rewrite(jaxpr)
        leaves = as_function(ClosedJaxpr(jaxpr, closed.consts))(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return run


def without_gradients(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function through which no gradient flows, neither from its arguments nor from what it closes over.

    On the inside nothing is differentiated either: loops that cannot be are allowed.
    """

    def run(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
        constants, inputs = stop_gradient((closed.consts, jax.tree.leaves(args)))
        leaves = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, constants))(*inputs)
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return run


def with_inputs(jaxpr: Jaxpr, given: list[Any]) -> Jaxpr:
    """Return the equations with more inputs at the end: these variables, which are given and not computed."""
    computed = [equation for equation in jaxpr.eqns if not set(equation.outvars) <= {*given}]
    return jaxpr.replace(eqns=computed, invars=[*jaxpr.invars, *given])


def with_outputs(jaxpr: Jaxpr, outputs: list[Any]) -> Jaxpr:
    """Return the equations that these outputs need, and no others but those with an effect."""
    needed, equations = {v for v in outputs if not isinstance(v, Literal)}, []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            equations.append(equation)
            needed.update(v for v in equation.invars if not isinstance(v, Literal))
    return jaxpr.replace(eqns=equations[::-1], outvars=outputs)
