"""How training shows where it is: a bar in a terminal, lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console

from steelyard.output import progress_bar, terminal

LINES = 20
WINDOW = 100


@contextmanager
def reporter(steps: int, shown: bool, done: int = 0) -> Iterator[Callable[[Any], None]]:
    """Give a function that is to be called with the history so far; say where a run goes on that made steps before."""
    console = terminal(stderr=True)
    if shown and done:
        where = f"goes on at step {done + 1} of {steps}" if done < steps else f"all {steps} steps were made before"
        console.print(where, soft_wrap=True, highlight=False)
    if not shown:
        yield lambda history: None
    elif console.is_terminal:
        with progress_bar(console) as bar:
            task = bar.add_task("compiling", total=steps)
            yield lambda history: bar.update(task, completed=len(history), description=describe(history))
    else:
        yield _lines(steps, console)


def _lines(steps: int, console: Console) -> Callable[[Any], None]:
    printed = 0

    def report(history: Any) -> None:
        nonlocal printed
        if len(history) >= steps or len(history) >= printed + steps / LINES:
            printed = len(history)
            console.print(f"step {printed} of {steps}: {describe(history)}", soft_wrap=True, highlight=False)

    return report


def describe(history: Any) -> str:
    """Return the averages over the last steps as a line of text; what is not finite does not count."""
    shown = {"loss": history.loss, "log Z": history.log_z, "ESS": history.ess}
    parts = [f"{name} {_average(values[-WINDOW:])}" for name, values in shown.items()]
    if skipped := int(np.sum(history.skipped)):
        parts.append(f"{skipped} steps skipped: loss, gradient or update not finite")
    return ", ".join(parts)


def _average(values: np.ndarray) -> str:
    finite = values[np.isfinite(values)]
    return f"{np.mean(finite):.4g}" if finite.size else "not finite"
