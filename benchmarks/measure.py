"""Interleaved timing of functions that compute the same thing, and a table of ratios."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import optax
from rich.table import Table

ROUNDS, SECONDS, BURST = 7, 20.0, 0.1


@dataclass(frozen=True)
class Cost:
    """What one contender needs: medians over the rounds, and the memory that XLA allots."""

    step: float
    compile: float | None = None
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
    peers: Mapping[str, Callable[[], float]] | None = None,
    compilations: int = 5,
) -> Row:
    """Measure jitted contenders in turn on the same arguments, after compiling each `compilations` times.

    Compile time is tracing, lowering and compiling, from empty caches. Memory is arguments, outputs and temporaries.
    `peers` are not JAX's: they run once when called, and return the seconds that it took them.
    """
    compiled: dict[str, Any] = {}
    compile_times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(compilations):
        for name, function in contenders.items():
            jax.clear_caches()
            start = time.perf_counter()
            compiled[name] = jax.jit(function).lower(*args).compile()
            compile_times[name].append(time.perf_counter() - start)
    step_times = _rounds({name: _timer(run, args) for name, run in compiled.items()} | dict(peers or {}))
    costs = {name: Cost(statistics.median(times)) for name, times in step_times.items()}
    for name, run in compiled.items():
        costs[name] = replace(costs[name], compile=statistics.median(compile_times[name]), memory=_memory(run))
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


def _rounds(timers: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Return what every timer measured in at least `ROUNDS` rounds, and in as many as `SECONDS` take.

    Many short rounds: when the machine slows down for a while, it does so for all of them.
    """
    times: dict[str, list[float]] = {name: [] for name in timers}
    start, rounds = time.perf_counter(), 0
    while rounds < ROUNDS or time.perf_counter() - start < SECONDS:
        for name, timer in timers.items():
            times[name].append(timer())
        rounds += 1
    return times


def _timer(run: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], float]:
    """Return a function that runs often enough to be timed, and returns the seconds of one run."""

    def seconds(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            result = run(*args)
        jax.block_until_ready(result)
        return (time.perf_counter() - start) / loops

    seconds(1)
    loops = max(1, int(BURST / seconds(1)))
    return lambda: seconds(loops)


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
        task = row.task
        for name, cost in row.costs.items():
            if name == row.yardstick:
                continue
            memory = _ratio(cost.memory, base.memory)
            if cost.memory is not None:
                memory += f" ({cost.memory / 1e6:.3g} MB)"
            steps, compiles = _ratio(cost.step, base.step), _ratio(cost.compile, base.compile)
            result.add_row(task, f"{name} / {row.yardstick}", steps, compiles, memory, _duration(base.step))
            task = ""
        result.add_section()
    return result


def _ratio(cost: float | None, base: float | None) -> str:
    return "" if cost is None or base is None else f"{cost / base:.2f}"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
