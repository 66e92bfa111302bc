"""Program transformations: the two of the paper, and one that reaches every primitive program of a kernel."""

from collections.abc import Callable

from steelyard.errors import GrammarError
from steelyard.language.programs import (
    Compose,
    Detach,
    Extend,
    Kernel,
    Move,
    Prev,
    Primitive,
    Program,
    Programmable,
    Propose,
    Rename,
    Resample,
    Scan,
    describe,
    is_kernel,
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
    match p:
        case Extend(inner, _):
            return marginal(inner)
        case _ if is_kernel(p):
            return p
        case _:
            raise GrammarError(
                f"marginal(p): p must be a target program: a callable, or an extend; got {describe(p)}. "
                f"Consider marginal(target(q)), or target(q), instead."
            )


def target(q: Programmable) -> Program:
    """Return the program whose density q denotes, free of propose and resample.

        target(p) = p                           target(resample(q)) = target(q)
        target(propose(p, q)) = marginal(p)     target(compose(q2, q1)) = compose(target(q2), target(q1))

    and likewise for move, rename and detach.

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
    match q:
        case Propose(p, _, _):
            return marginal(p)
        case Resample(inner, _, _):
            return target(inner)
        case Compose(q2, q1):
            return Compose(target(q2), target(q1))
        case Move(q2, q1):
            return Move(target(q2), target(q1))
        case Rename(inner, addresses):
            return Rename(target(inner), addresses)
        case Detach(inner):
            return target(inner)
        case Scan():
            return target(_remembering(q).unrolled_once())
        case _:
            return q


def _remembering(q: Scan) -> Scan:
    if q.keep is not None:
        raise GrammarError(
            f"{describe(q)}: this scan keeps only the newest version of each variable, so that its density would be an "
            f"integral over the others. Leave keep out, scan(step, q, xs), where a density is needed."
        )
    return q


def map_primitive(f: Kernel, change: Callable[[Primitive], Primitive]) -> Kernel:
    """Return the kernel with its primitive program changed."""
    match f:
        case Primitive():
            return change(f)
        case Prev(inner):
            return Prev(map_primitive(inner, change))
        case Rename(inner, addresses) if is_kernel(inner):
            return Rename(map_primitive(inner, change), addresses)
        case _:
            raise GrammarError(f"{describe(f)} is not a primitive program.")
