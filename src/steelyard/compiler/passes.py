"""The passes of the compiler: each makes programs faster, and changes no result but for rounding.

"products", "segments" and "draws" make up for what XLA does on a CPU, and are done on CPUs only. They choose where a
program is lowered, by `jax.lax.platform_dependent`: a program for another processor is free of them, wherever it was
traced.
"""

from collections.abc import Collection
from typing import Literal, TypeAlias, get_args

from steelyard.errors import ArgumentError

Pass: TypeAlias = Literal[
    "reuse", "common subexpressions", "rematerialization", "products", "repeats", "segments", "draws", "loops"
]
EVERY: frozenset[str] = frozenset(get_args(Pass))


def chosen(optimize: bool | Collection[Pass]) -> frozenset[str]:
    """Return the passes that run: all of them, none, or those that are named.

    Raises:
        ArgumentError: there is no pass of that name.

    Example:
        >>> from steelyard.compiler.passes import chosen
        >>> len(chosen(True)), len(chosen(False)), sorted(chosen(["reuse", "products"]))
        (8, 0, ['products', 'reuse'])
    """
    if isinstance(optimize, bool):
        return EVERY if optimize else frozenset()
    try:
        names = None if isinstance(optimize, str) else frozenset(optimize)
    except TypeError:
        names = None
    if names is None or not names <= EVERY:
        raise ArgumentError(
            f"evaluate: optimize is True, False, or the passes to run, of {', '.join(map(repr, get_args(Pass)))}; got "
            f"{optimize!r}."
        )
    return names
