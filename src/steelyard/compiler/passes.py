"""The passes of the compiler: each makes programs faster, and changes no result but for rounding."""

from collections.abc import Collection
from typing import Literal, TypeAlias, get_args

import jax

from steelyard.errors import ArgumentError

Pass: TypeAlias = Literal[
    "reuse", "common subexpressions", "rematerialization", "products", "repeats", "segments", "draws", "loops"
]
EVERY: frozenset[str] = frozenset(get_args(Pass))
# These make up for what XLA does on a CPU.
FOR_CPUS = frozenset({"products", "segments", "draws", "loops"})


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
        suitable = EVERY if jax.default_backend() == "cpu" else EVERY - FOR_CPUS
        return suitable if optimize else frozenset()
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
