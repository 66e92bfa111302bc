"""What something costs at three sizes, how fast that grows, and what the yardstick costs at the largest."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from rich.table import Table

ROUNDS = 7

# A function to be compiled, and its arguments.
Job = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Cost:
    """Seconds of a run and of compilation, and bytes of temporaries and results."""

    run: float
    compile: float
    memory: int


@dataclass(frozen=True)
class Growth:
    """The costs of one task at growing sizes, and those of the yardstick at the largest."""

    task: str
    sizes: tuple[int, ...]
    costs: tuple[Cost, ...]
    yardstick: str
    base: Cost

    def exponent(self, of: str) -> float:
        """Return the power of the size with which a cost grows, from the first size to the last."""
        first, last = (getattr(cost, of) for cost in (self.costs[0], self.costs[-1]))
        return math.log(last / first) / math.log(self.sizes[-1] / self.sizes[0])


def growth(
    task: str, sizes: Sequence[int], ours: Callable[[int], Job], yardstick: str, theirs: Callable[[int], Job]
) -> Growth:
    """Measure a task at each size; at the largest in turn with the yardstick."""
    jobs = [ours(size) for size in sizes]
    *costs, last, base = [*(_measured([job])[0] for job in jobs[:-1]), *_measured([jobs[-1], theirs(sizes[-1])])]
    return Growth(task, tuple(sizes), (*costs, last), yardstick, base)


def _measured(jobs: list[Job]) -> list[Cost]:
    compiled, compile_times = [], []
    for function, args in jobs:
        start = time.perf_counter()
        compiled.append(jax.jit(function).lower(*args).compile())
        compile_times.append(time.perf_counter() - start)
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(ROUNDS + 1):
        for run, (_, args), seconds in zip(compiled, jobs, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run(*args))
            seconds.append(time.perf_counter() - start)
    # The first round warms up.
    medians = [statistics.median(seconds[1:]) for seconds in times]
    return [Cost(*each) for each in zip(medians, compile_times, map(_memory, compiled), strict=True)]


def _memory(compiled: Any) -> int:
    analysis = compiled.memory_analysis()
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes


KINDS = {"run": ("ms", 1e3), "compile": ("s", 1.0), "memory": ("MB", 1e-6)}


def table(rows: list[Growth]) -> Table:
    """Return costs, exponents and ratios; a task has a line for each kind of cost."""
    result = Table(title="growth: costs at three sizes, and at the largest next to the yardstick", title_justify="left")
    for name in ("task", "cost", "at", "is", "exponent", "ratio", "yardstick"):
        result.add_column(name, justify="right" if name in ("exponent", "ratio") else "left")
    for row in rows:
        task, sizes = row.task, " / ".join(f"{size:,}" for size in row.sizes)
        for kind, (unit, factor) in KINDS.items():
            values = " / ".join(f"{getattr(cost, kind) * factor:.3g}" for cost in row.costs)
            ratio = getattr(row.costs[-1], kind) / getattr(row.base, kind)
            result.add_row(
                task, kind, sizes, f"{values} {unit}", f"{row.exponent(kind):.2f}", f"{ratio:.2f}", row.yardstick
            )
            task = sizes = ""
        result.add_section()
    return result
