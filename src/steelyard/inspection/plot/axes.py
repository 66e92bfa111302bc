"""Axes to draw on, and texts as matplotlib takes them."""

from typing import Any

import numpy as np

from steelyard.errors import ArgumentError

# So many pictures can be read next to each other.
MOST_IN_A_ROW = 4


def axes_for(count: int, given: Any, name: str, *, square: bool = False) -> np.ndarray:
    """Return as many axes: those that were given, or new ones; for a square of pairs, in so many rows and columns."""
    needed = count * count if square else count
    if given is not None:
        found = np.asarray(given, dtype=object).reshape(-1)
        if len(found) < needed:
            message = f"plot.{name} needs {needed} axes here, and got {len(found)}. Leave axes out to have them made."
            raise ArgumentError(message)
        return found[:needed]
    # Here, because it takes a while to import, and most programs draw nothing.
    import matplotlib.pyplot as plt

    columns = count if square else min(count, MOST_IN_A_ROW)
    rows = -(-needed // columns)
    size = (6, 3.5) if needed == 1 else (3 * columns, 2.8 * rows)
    _, made = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    made = made.reshape(-1)
    for ax in made[needed:]:
        ax.set_axis_off()
    return made[:needed]


def plain(text: str) -> str:
    """Return a text that matplotlib takes as it is: a dollar begins no formula, and an underscore hides no label."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
