"""How cost grows with the work: each row at three sizes, and next to the same written by hand at the largest.

A row is a function that returns a `Growth`. Each file holds the rows of one topic, and names them in its `ROWS`.
"""

from collections.abc import Callable

from rich.console import Group

from benchmarks.growth import draws, limits, masks, objectives, resampling, sites, tracing, training
from benchmarks.growth.measure import Growth, table

ROWS: tuple[Callable[[], Growth], ...] = (
    *sites.ROWS,
    *draws.ROWS,
    *objectives.ROWS,
    *resampling.ROWS,
    *masks.ROWS,
    *training.ROWS,
)


def run() -> Group:
    """Measure and count every row."""
    return Group(table([row() for row in ROWS]), tracing.table(tracing.run()), limits.table())
