"""Long programs that are written out, compiled in segments.

XLA needs memory and time for pairs of operations. A sweep of a thousand updates has half a million of them, more than a
machine has memory for. Cut into segments that are compiled one by one, it needs time and memory in proportion to its
length.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from steelyard.language.programs import Carried, Program, Scan, subprograms

# So many equations are compiled in segments, of at most so many.
MANY, SEGMENT = 30_000, 10_000
# A program that is made of so many programs may have more equations than that.
LONG = 200


def is_long(q: Program) -> bool:
    """Tell whether a program is made of many others, written out."""
    return next(islice(_written_out(q), LONG, None), None) is not None


def _written_out(q: Program) -> Iterator[Program]:
    """Yield the programs that q is made of; of a scan of one step, also those of the step."""
    for part in subprograms(q):
        yield part
        if isinstance(part, Scan) and part.length == 1:
            yield from subprograms(part.build(Carried(), 0))


def in_segments(closed: ClosedJaxpr) -> Callable[..., Any]:
    """Return the function that these equations compute; on a CPU, many of them are compiled segment by segment.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from steelyard.compiler.segments import in_segments
        >>> in_segments(jax.make_jaxpr(jnp.sin)(0.0))(0.0)
        [Array(0., dtype=float32, weak_type=True)]
    """
    jaxpr = closed.jaxpr
    if not _is_cut(jaxpr):
        return jaxpr_as_fun(closed)
    segments = _cut(jaxpr)

    def run(*args: Any) -> list[Any]:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))
        for segment in segments:
            results = apart(jaxpr_as_fun(ClosedJaxpr(segment, ())))(*(known[v] for v in segment.invars))
            known.update(zip(segment.outvars, results, strict=True))
        return [_value(v, known) for v in jaxpr.outvars]

    return run


def _is_cut(jaxpr: Jaxpr) -> bool:
    return len(jaxpr.eqns) >= MANY and not jaxpr.effects


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, in segments if it has many equations.

    How many there are is known when all are traced. If they are few, what JAX traced is called as it is: to bind them
    one by one again, as `in_segments` does, takes half as long as to trace them.
    """

    def run(*args: Any) -> Any:
        compiled = jax.jit(function)
        closed, shapes = jax.make_jaxpr(compiled, return_shape=True)(*args)
        call = closed.jaxpr.eqns[0]
        # Without `jit`, which may be turned off, there is no call.
        whole = call.params.get("jaxpr") if len(closed.jaxpr.eqns) == 1 else None
        if whole is None or not _is_cut(whole.jaxpr):
            return compiled(*args)
        inputs = (*closed.jaxpr.constvars, *closed.jaxpr.invars)
        known: dict[Any, Any] = dict(zip(inputs, (*closed.consts, *jax.tree.leaves(args)), strict=True))
        results = in_segments(whole)(*(_value(v, known) for v in call.invars))
        known.update(zip(call.outvars, results, strict=True))
        leaves = [_value(v, known) for v in closed.jaxpr.outvars]
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return run


def _value(v: Any, known: dict[Any, Any]) -> Any:
    return v.val if isinstance(v, Literal) else known[v]


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, which XLA on a CPU compiles apart from what is around it. What it calls is a part of it."""

    def run(*args: Any) -> Any:
        with set_xla_metadata(inlineable="true"):
            return function(*args)

    def call(*args: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return jax.jit(run)(*args)

    return lambda *args: jax.lax.platform_dependent(*args, cpu=call, default=function)


def _cut(jaxpr: Jaxpr) -> list[Jaxpr]:
    """Return the equations in segments, each with its inputs and those of its results that are needed later."""
    segments: list[Jaxpr] = []
    needed_later = _variables(jaxpr.outvars)
    for start in reversed(range(0, len(jaxpr.eqns), SEGMENT)):
        equations = jaxpr.eqns[start : start + SEGMENT]
        own = {v for equation in equations for v in equation.outvars}
        used = _variables(v for equation in equations for v in equation.invars)
        inputs = [v for v in used if v not in own]
        outputs: list[Any] = [v for v in needed_later if v in own]
        segments.append(jaxpr.replace(constvars=[], invars=inputs, outvars=outputs, eqns=equations))
        needed_later = dict.fromkeys([*(v for v in needed_later if v not in own), *inputs])
    return segments[::-1]


def _variables(atoms: Any) -> dict[Any, None]:
    """Return the variables among these, each once, in their order."""
    return dict.fromkeys(v for v in atoms if not isinstance(v, Literal))
