"""Interleaved timing of functions that compute the same thing, and a table of ratios."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import optax
from rich.table import Table


@dataclass(frozen=True)
class Cost:
    """What one contender needs: medians over the repetitions, and the memory that XLA allots."""

    step: float
    compile: float
    memory: int | None = None


@dataclass(frozen=True)
class Row:
    """One benchmark: what was run, by whom at which cost, and which contender is the yardstick."""

    task: str
    costs: Mapping[str, Cost]
    yardstick: str


def compare(
    task: str,
    contenders: Mapping[str, Callable[..., Any]],
    args: tuple[Any, ...],
    yardstick: str,
    *,
    repeats: int = 7,
    compilations: int = 5,
) -> Row:
    """Measure jitted contenders in turn on the same arguments: `repeats` runs and `compilations` of each.

    Compile time is tracing, lowering and compiling, from empty caches. Memory is arguments, outputs and temporaries.
    """
    compiled: dict[str, Any] = {}
    compile_times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(compilations):
        for name, function in contenders.items():
            jax.clear_caches()
            start = time.perf_counter()
            compiled[name] = jax.jit(function).lower(*args).compile()
            compile_times[name].append(time.perf_counter() - start)
    step_times: dict[str, list[float]] = {name: [] for name in contenders}
    loops = {name: _loops(run, args) for name, run in compiled.items()}
    for _ in range(repeats):
        for name, run in compiled.items():
            start = time.perf_counter()
            for _ in range(loops[name]):
                result = run(*args)
            jax.block_until_ready(result)
            step_times[name].append((time.perf_counter() - start) / loops[name])
    costs = {
        name: Cost(
            statistics.median(step_times[name]),
            statistics.median(compile_times[name]),
            _memory(compiled[name]),
        )
        for name in contenders
    }
    return Row(task, costs, yardstick)


def compare_training(
    task: str, contenders: Mapping[str, Callable[[Any, int], Any]], yardstick: str, *, steps: int, repeats: int = 5
) -> Row:
    """Measure functions of a key and a number of steps that train, each in a loop of its own.

    Whole runs of many and of few steps are timed in turn, from empty caches; the difference is the steps, without
    compilation.
    """
    few = 100
    times: dict[str, dict[int, list[float]]] = {name: {few: [], few + steps: []} for name in contenders}
    for repeat in range(repeats):
        for name, train in contenders.items():
            for count, seconds in times[name].items():
                jax.clear_caches()
                start = time.perf_counter()
                jax.block_until_ready(train(jax.random.key(repeat), count))
                seconds.append(time.perf_counter() - start)
    short, long = ({name: statistics.median(runs[n]) for name, runs in times.items()} for n in (few, few + steps))
    return Row(task, {name: Cost((long[name] - short[name]) / steps, short[name]) for name in contenders}, yardstick)


def _loops(run: Callable[..., Any], args: tuple[Any, ...], seconds: float = 0.5) -> int:
    """Return how often to run between two looks at the clock."""
    jax.block_until_ready(run(*args))
    start = time.perf_counter()
    jax.block_until_ready(run(*args))
    return max(1, int(seconds / (time.perf_counter() - start)))


def _memory(compiled: Any) -> int:
    analysis = compiled.memory_analysis()
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes + analysis.argument_size_in_bytes


def gradient_step(loss: Callable[..., Any], static: Any, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """Return one training step on `loss(model, *args)`, whose arrays are apart from what is static in it."""

    def update(parameters: Any, state: Any, *args: Any) -> Any:
        value, gradients = jax.value_and_grad(lambda p: loss(eqx.combine(p, static), *args))(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return update


def in_a_loop(step: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """Return `steps` training steps as one compiled loop, with a key for each."""

    def update(parameters: Any, state: Any, key: Any, *args: Any) -> Any:
        def body(carry: Any, key: Any) -> Any:
            *carry, value = step(*carry, key, *args)
            return tuple(carry), value

        carry, values = jax.lax.scan(body, (parameters, state), jax.random.split(key, steps))
        return *carry, values

    return update


def table(benchmark: str, rows: list[Row]) -> Table:
    """Return the ratios of every contender to its yardstick."""
    title = f"{benchmark}: costs relative to the yardstick (medians of one interleaved run)"
    result = Table(title=title, title_justify="left")
    for name in ("task", "contender", "step", "compile", "memory", "step of the yardstick"):
        result.add_column(name, justify="left" if name in ("task", "contender") else "right")
    for row in rows:
        base = row.costs[row.yardstick]
        for name, cost in row.costs.items():
            if name == row.yardstick:
                continue
            memory = ""
            if cost.memory is not None and base.memory is not None:
                memory = f"{cost.memory / base.memory:.2f} ({cost.memory / 1e6:.3g} MB)"
            result.add_row(
                row.task,
                f"{name} / {row.yardstick}",
                f"{cost.step / base.step:.2f}",
                f"{cost.compile / base.compile:.2f}",
                memory,
                f"{base.step * 1e3:.3g} ms",
            )
    return result
