"""How tracing and compiling grow with the size of a program: counts at three sizes, each with what they should be.

Counts do not depend on what else the machine does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from rich.table import Table

import steelyard as sy

KEY, PARTICLES = jax.random.key(0), 1000


@dataclass(frozen=True)
class Count:
    """What something costs at three sizes, and the power of the size that it should grow with."""

    what: str
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    power: int

    @property
    def exponent(self) -> float:
        """The power of the size that the count grows with, from the second size to the third."""
        return log(self.counts[-1] / self.counts[-2]) / log(self.sizes[-1] / self.sizes[-2])

    @property
    def ratio(self) -> float:
        """The last count, in units of what the first one would have grown to with that power."""
        return self.counts[-1] / (self.counts[0] * (self.sizes[-1] / self.sizes[0]) ** self.power)


def counted(what: str, sizes: tuple[int, ...], count: Callable[[int], int], power: int) -> Count:
    """Count at each size."""
    return Count(what, sizes, tuple(map(count, sizes)), power)


def model(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(0.5, 1.0))
    s.observe("x", dist.Normal(z, 0.7), 0.3)
    return z


def chain(length: int) -> Callable[[sy.State], None]:
    def program(s: sy.State) -> None:
        z = 0.0
        for t in range(length):
            z = s.sample(f"z{t}", dist.Normal(0.9 * z, 1.0))
            s.observe(f"x{t}", dist.Normal(z, 0.5), 0.1 * t)

    return program


def log_z(q: Any) -> Callable[[Any], Any]:
    return lambda key: sy.evaluate(q, key, particles=PARTICLES).log_z


def operations_of_sites(sites: int) -> int:
    """Operations that XLA compiles for a program with so many variables, each drawn by itself."""
    return jax.jit(log_z(chain(sites))).lower(KEY).compile().as_text().count(" = ")


def kernel_calls_of_moves(moves: int) -> int:
    """How often kernels run, where a chain of moves is detached."""
    calls: list[int] = []

    def kernel(s: sy.State, z: Any) -> Any:
        calls.append(1)
        return s.sample("z", dist.Normal(0.5 * z, 1.0))

    q: Any = sy.propose(model, model)
    for _ in range(moves):
        q = sy.move(kernel, q)
    jax.jit(log_z(sy.detach(q))).trace(KEY)
    return len(calls)


def traces_of_a_nested_step(depth: int) -> int:
    """How often the step of the innermost of so many loops is traced."""
    calls: list[int] = []

    def kernel(s: sy.State, z: Any) -> Any:
        calls.append(1)
        return s.sample("z", dist.Normal(0.5 * z, 1.0))

    def step(depth: int) -> Callable[[Any, Any], Any]:
        if depth == 0:
            return lambda q, _: sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, q))
        return lambda q, _: sy.scan(step(depth - 1), q, jnp.arange(2))

    jax.jit(log_z(sy.scan(step(depth - 1), sy.propose(model, model), jnp.arange(2)))).trace(KEY)
    # The kernel runs in the proposal, and in the target.
    return len(calls) // 2


def equations_of_a_sweep(kernels: int) -> int:
    """Equations of a sweep of so many updates, each of one of two variables."""

    def joint(s: sy.State) -> Any:
        return model(s), s.sample("y", dist.Normal(0.0, 1.0))

    def of(name: str) -> Callable[..., None]:
        def kernel(s: sy.State, values: Any) -> None:
            s.sample(name, dist.Normal(0.5 * values[0] + 0.1 * values[1], 1.0))

        return kernel

    q: Any = sy.propose(joint, joint)
    for i in range(kernels):
        kernel = of("zy"[i % 2])
        q = sy.propose(sy.extend(joint, sy.prev(kernel)), sy.move(kernel, sy.resample(q)))
    jaxpr = jax.jit(log_z(q)).trace(KEY).jaxpr
    # A long program is one equation, which has its own.
    inner = [equation.params["jaxpr"] for equation in jaxpr.eqns if "jaxpr" in equation.params]
    return max(len(x.eqns) for x in (jaxpr, *inner))


def compilations(run: Callable[[], Any]) -> int:
    """How often something is compiled."""
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    run()
    jax.monitoring.unregister_event_duration_listener(listen)
    return len(compiled)


def compilations_of_calls(calls: int) -> int:
    """How often something is compiled in so many calls of `evaluate` outside of `jit`."""

    def step(q: Any, y: Any) -> Any:
        def transition(s: sy.State, z: Any) -> Any:
            z = s.sample("z", dist.Normal(0.9 * z, 0.5))
            s.observe("x", dist.Normal(z, 1.0), y)
            return z

        return sy.move(transition, sy.resample(q))

    def run() -> None:
        for seed in range(calls):
            sy.evaluate(sy.scan(step, model, jnp.arange(5.0), keep=["z"]), jax.random.key(seed), particles=PARTICLES)

    return compilations(run)


def compilations_of_particles(particles: int) -> int:
    """How often the universal engine compiles something for so many particles."""

    def program(s: sy.State) -> None:
        scale = s.sample("scale", dist.Gamma(2.0, 1.0))
        s.observe("x", dist.Normal(0.0, scale), 0.3)

    return compilations(lambda: sy.evaluate(program, KEY, particles=particles, engine="universal"))


ROWS: dict[str, tuple[tuple[int, ...], Callable[[int], int], int]] = {
    "operations by scalar variables": ((25, 50, 100), operations_of_sites, 1),
    "kernel calls by moves, detached": ((2, 4, 8), kernel_calls_of_moves, 1),
    "traces of a step by loops around it": ((1, 2, 4), traces_of_a_nested_step, 0),
    "equations by kernels of a sweep": ((10, 20, 40), equations_of_a_sweep, 1),
    "compilations by calls outside of jit": ((1, 2, 4), compilations_of_calls, 0),
    "compilations by particles, universal engine": ((5, 10, 20), compilations_of_particles, 0),
}


def run() -> list[Count]:
    """Count everything."""
    return [counted(what, sizes, count, power) for what, (sizes, count, power) in ROWS.items()]


def table(rows: list[Count]) -> Table:
    """Return counts, exponents, and ratios to counts that grow as they should."""
    result = Table(title="How tracing and compiling grow", title_justify="left")
    for name in ("what", "sizes", "counts", "exponent", "should be", "ratio"):
        result.add_column(name)
    for row in rows:
        sizes, counts = (" / ".join(f"{x:,}" for x in numbers) for numbers in (row.sizes, row.counts))
        result.add_row(row.what, sizes, counts, f"{row.exponent:.2f}", str(row.power), f"{row.ratio:.2f}")
    return result
