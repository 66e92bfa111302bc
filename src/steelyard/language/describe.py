"""Programs as the expressions that build them, for messages and labels."""

from functools import partial

from steelyard.errors import GrammarError
from steelyard.language.programs import (
    Adapt,
    Carried,
    Compose,
    Detach,
    Extend,
    Mcmc,
    Metropolis,
    Move,
    Prev,
    Primitive,
    Program,
    Propose,
    Rename,
    Resample,
    Scan,
    Transport,
    name_of,
)


def describe(q: Program, depth: int = 12) -> str:
    """Return the program as the expression that builds it, with the names of the primitive programs.

    Of what is nested deeper than so many combinators it shows three dots.
    """
    if depth == 0:
        return "..."
    of = partial(describe, depth=depth - 1)

    match q:
        case Primitive():
            name = f"stick_the_landing({q.name})" if q.sticks else q.name
            if not isinstance(q.power, float):
                name = f"temper({name})"
            elif q.power != 1:
                name = f"temper({name}, {q.power:g})"
            return f"detach({name})" if q.detached else name
        case Mcmc(kernel, inner):
            return f"mcmc({name_of(kernel)}, {of(inner)})"
        case Metropolis(f, inner):
            return f"metropolis({of(f)}, {of(inner)})"
        case Transport(bijection, inner):
            return f"transport({name_of(bijection)}, {of(inner)})"
        case Adapt():
            return f"scan({name_of(q.step)}, {of(q.q)})"
        case Detach(inner):
            return f"detach({of(inner)})"
        case Scan():
            return f"scan({name_of(q.step)}, {of(q.q)})"
        case Carried():
            return "..."
        case Prev(f):
            return f"prev({of(f)})"
        case Rename(inner, _):
            return f"rename({of(inner)}, {q.new})"
        case Extend(p, f):
            return f"extend({of(p)}, {of(f)})"
        case Compose(q2, q1):
            return f"compose({of(q2)}, {of(q1)})"
        case Propose(p, inner, _):
            return f"propose({of(p)}, {of(inner)})"
        case Resample(inner, _, _):
            return f"resample({of(inner)})"
        case Move(q2, q1):
            return f"move({of(q2)}, {of(q1)})"


def expected(form: str, part: str, kind: str, got: Program, instead: str) -> GrammarError:
    """Return the error for a part of a form that is not what the grammar expects there."""
    return GrammarError(f"{form}: {part} must be {kind}; got {describe(got)}. Consider {instead} instead.")
