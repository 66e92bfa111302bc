"""Functions as equations that can be rewritten, before they are differentiated and compiled."""

from collections.abc import Callable, Collection, Mapping
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
        >>> from steelyard.compiler.equations import rewritten
        >>> from steelyard.compiler.common_subexpressions import eliminate_common_subexpressions
        >>> f = rewritten(lambda x: jnp.sin(x) * jnp.sin(x), eliminate_common_subexpressions)
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


class Slices:
    """Equations of which parts are asked for; a part costs as much as it has equations, however long the whole is."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self._jaxpr = jaxpr
        self._source = {v: number for number, equation in enumerate(jaxpr.eqns) for v in equation.outvars}
        self._effects = [number for number, equation in enumerate(jaxpr.eqns) if equation.effects]

    def computing(self, outputs: list[Any], given: Collection[Any] = ()) -> tuple[Jaxpr, set[Any]]:
        """Return the equations that outputs need, where some variables are given; and the inputs that these need.

        Equations with an effect are always needed.
        """
        needed, inputs = set(self._effects), set[Any]()
        waiting = [*outputs, *(v for number in needed for v in self._jaxpr.eqns[number].invars)]
        while waiting:
            v = waiting.pop()
            if isinstance(v, Literal):
                continue
            number = None if v in given else self._source.get(v)
            if number is None:
                inputs.add(v)
            elif number not in needed:
                needed.add(number)
                waiting += self._jaxpr.eqns[number].invars
        equations = [self._jaxpr.eqns[number] for number in sorted(needed)]
        return self._jaxpr.replace(eqns=equations, outvars=outputs), inputs


def reach(jaxpr: Jaxpr, start: Mapping[Any, frozenset[str]]) -> Callable[[Any], frozenset[str]]:
    """Follow equations from marked variables to everything that is computed from them; return the marks that reach it.

    An equation whose inside is not looked into, such as a loop, passes all marks on to all its results.

    Example:
        >>> import jax
        >>> from steelyard.compiler.equations import reach
        >>> jaxpr = jax.make_jaxpr(lambda x, y: (x + y, 2 * y))(1.0, 1.0).jaxpr
        >>> marks = reach(jaxpr, {v: frozenset([name]) for v, name in zip(jaxpr.invars, "xy")})
        >>> [sorted(marks(v)) for v in jaxpr.outvars]
        [['x', 'y'], ['y']]
    """
    reached = dict(start)

    def of(v: Any) -> frozenset[str]:
        return frozenset() if isinstance(v, Literal) else reached.get(v, frozenset())

    for equation in jaxpr.eqns:
        if marks := frozenset[str]().union(*map(of, equation.invars)):
            reached.update(dict.fromkeys(equation.outvars, marks))
    return of
