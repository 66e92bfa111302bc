"""What runs in Python, particle by particle or outcome by outcome; and what grows too fast, with the reason."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpyro.distributions as dist
from rich.table import Table

import steelyard as sy

KEY = jax.random.key(0)

REASONS = (
    (
        "universal engine",
        "each particle is a run of Python, a third of it the program itself; draws, one by one, are a tenth",
        "use it for programs that must branch; else s.when",
    ),
    (
        "testing.enumerate",
        "each outcome is a run of Python, independent of the compiler; calls that outcomes share are made once",
        "test small programs",
    ),
    (
        "resampling, next to floats (128 particles: 1.2 to 2 times the time, 1.3 to compile)",
        "sums of weights are exact, in integers of two words: no particle is lost or favoured by rounding",
        "resample less often: resample(q, threshold=0.5)",
    ),
    (
        "compile time of train, at first (1.5 to 1.7 times)",
        "a step also evaluates a program, checks that all is finite and keeps a history: 130 to 470 operations more",
        "nothing: it is paid once",
    ),
    (
        "a sweep of N kernels over N variables",
        "each resampling takes N arrays: N^2 equations, as with N arrays by hand",
        "variables that move together in one array; sweeps in a scan",
    ),
    (
        "chains of truncated variables, run time",
        "XLA computes draws again for each use, unless they are returned (24 sites: 36 ms, returned 0.6)",
        "return out.trace from the compiled function as well",
    ),
)


def branching(s: sy.State) -> None:
    if s.sample("flag", dist.Bernoulli(0.4)) == 1:
        s.sample("x", dist.Normal(0.0, 1.0))
    s.observe("y", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), 0.3)


def flips(sites: int) -> Callable[[sy.State], None]:
    def program(s: sy.State) -> None:
        for i in range(sites):
            s.sample(f"x{i}", dist.Bernoulli(0.3))

    return program


def particles(size: int) -> float:
    """Milliseconds for each particle of the universal engine."""
    return _milliseconds(lambda: sy.evaluate(branching, KEY, particles=size, engine="universal")) / size


def outcomes(sites: int) -> float:
    """Milliseconds for each outcome that is enumerated."""
    return _milliseconds(lambda: list(sy.testing.enumerate(flips(sites), particles=1))) / 2**sites


def _milliseconds(run: Callable[[], Any]) -> float:
    """Milliseconds of the processor: what else the machine does counts less."""
    run()
    start = time.process_time()
    run()
    return 1e3 * (time.process_time() - start)


ROWS = {
    "ms a particle, universal engine, by particles": ((30, 100, 300), particles),
    "ms an outcome of testing.enumerate, by sites": ((4, 6, 8), outcomes),
}


def table() -> Table:
    """Return what runs in Python, measured; and every limit with its reason and what to do."""
    result = Table(title="Limits", title_justify="left")
    for name in ("what", "why, or at", "what to do, or is"):
        result.add_column(name)
    for what, (sizes, cost) in ROWS.items():
        numbers = [cost(size) for size in sizes]
        result.add_row(what, " / ".join(map(str, sizes)), " / ".join(f"{x:.2f}" for x in numbers))
    result.add_section()
    for reason in REASONS:
        result.add_row(*reason)
    return result
