"""Program transformations: the two of the paper, and one that reaches every primitive program of a kernel."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steelyard.errors import GrammarError
from steelyard.language.describe import describe
from steelyard.language.programs import (
    Adapt,
    Carried,
    Compose,
    Detach,
    Extend,
    Kernel,
    Mcmc,
    Metropolis,
    Move,
    Prev,
    Primitive,
    Program,
    Programmable,
    Propose,
    Rename,
    Resample,
    Scan,
    Target,
    Transport,
    is_kernel,
    is_target,
    program,
)


def marginal(p: Programmable) -> Kernel:
    """Return the primitive program that a target extends.

        marginal(f) = f        marginal(extend(p, f)) = marginal(p)

    Args:
        p: a target program.

    Returns:
        A primitive program.

    Raises:
        GrammarError: p is not a target program.

    Example:
        >>> import steelyard as sy
        >>> def p(s): ...
        >>> def f(s, c): ...
        >>> sy.marginal(sy.extend(sy.extend(p, f), f)) == sy.marginal(p)
        True
    """
    p = program(p)
    while isinstance(p, Extend):
        p = p.p
    if is_kernel(p):
        return p
    raise GrammarError(
        f"marginal(p): p must be a target program: a callable, or an extend; got {describe(p)}. "
        f"Consider marginal(target(q)), or target(q), instead."
    )


def target(q: Programmable) -> Program:
    """Return the program whose density q denotes, free of propose and resample.

        target(p) = p                           target(resample(q)) = target(q)
        target(propose(p, q)) = marginal(p)     target(compose(q2, q1)) = compose(target(q2), target(q1))

    and likewise for move, rename, detach and transport. mcmc and metropolis leave the density of q as it is.

    Args:
        q: any program.

    Returns:
        The program that q samples from.

    Example:
        >>> import steelyard as sy
        >>> def p(s): ...
        >>> def g(s): ...
        >>> sy.target(sy.resample(sy.propose(p, g))) == sy.target(p)
        True
    """
    q = program(q)
    around: list[Compose | Move | Rename | Transport] = []
    while not is_target(q):
        if isinstance(q, Compose | Move | Rename | Transport):
            around.append(q)
            q = q.q if isinstance(q, Rename | Transport) else q.q1
        elif (same := SAME_DENSITY[type(q)](q)) is None:
            break
        else:
            q = same
    for outer in reversed(around):
        q = replace(outer, q=q) if isinstance(outer, Rename | Transport) else replace(outer, q2=target(outer.q2), q1=q)
    return q


def _without_last_step(q: Scan) -> Program:
    if q.keep is not None:
        raise GrammarError(
            f"{describe(q)}: this scan keeps only the newest version of each variable, so that its density would be an "
            f"integral over the others. Leave keep out, scan(step, q, xs), where a density is needed."
        )
    return q.unrolled_once()


def _not_known(q: Adapt) -> Program:
    raise GrammarError(
        f"{describe(q)}: an adaptive schedule chooses its programs while it runs, so that its density is not known "
        f"before. Run it, and use the schedule that it found: sy.found(out)."
    )


# For each inference program one that denotes the same density; None, where a step does not know it.
SAME_DENSITY: dict[type[Program], Callable[[Any], Program | None]] = {
    Propose: lambda q: marginal(q.p),
    Resample: lambda q: q.q,
    Detach: lambda q: q.q,
    Mcmc: lambda q: q.q,
    Metropolis: lambda q: q.q,
    Scan: _without_last_step,
    Adapt: _not_known,
    Carried: lambda q: q.density,
}


def map_primitive(f: Target, change: Callable[[Primitive], Primitive]) -> Any:
    """Return the kernel with its primitive program changed; of an extended target, that of its marginal."""
    match f:
        case Primitive():
            return change(f)
        case Extend(p, kernel):
            return Extend(map_primitive(p, change), kernel)
        case Prev(inner):
            return Prev(map_primitive(inner, change))
        case Rename(inner, addresses) if is_kernel(inner):
            return Rename(map_primitive(inner, change), addresses)
        case _:
            raise GrammarError(f"{describe(f)} is not a primitive program.")
