"""Programs as the expressions that build them, for messages and labels."""

from functools import partial

from steelyard.errors import GrammarError
from steelyard.language.programs import (
    Adapt,
    Carried,
    Mcmc,
    Primitive,
    Program,
    Rename,
    Scan,
    Transport,
    name_of,
    parts,
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
        case Transport(bijection, inner):
            return f"transport({name_of(bijection)}, {of(inner)})"
        case Scan() | Adapt():
            return f"scan({name_of(q.step)}, {of(q.q)})"
        case Carried():
            return "..."
        case Rename(inner, _):
            return f"rename({of(inner)}, {q.new})"
        case _:
            return f"{type(q).__name__.lower()}({', '.join(of(part) for _, part in parts(q))})"


def expected(form: str, part: str, kind: str, got: Program, instead: str) -> GrammarError:
    """Return the error for a part of a form that is not what the grammar expects there."""
    return GrammarError(f"{form}: {part} must be {kind}; got {describe(got)}. Consider {instead} instead.")
