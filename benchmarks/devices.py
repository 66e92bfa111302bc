"""Particles over several devices of one machine: time next to one device, and bytes sent in one resample.

`python -m benchmarks devices` starts a process of its own, because a process has as many devices as it starts with.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.table import Table

import steelyard as sy
from benchmarks.networks import collectives
from steelyard.ancestors import indices_of, take
from steelyard.compiler.randomness import particle_key, scattered
from steelyard.devices.exchange import message_size
from steelyard.devices.routes import Routes
from steelyard.language.programs import program
from steelyard.particles.resampling import ancestors, draw_noise

PARTICLES, STEPS, TIMES = 4_000_000, 50, 7
KEY = jax.random.key(0)


def run() -> Table:
    """Measure in a process with eight devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "benchmarks.devices"]
    done = subprocess.run(
        command, env={**os.environ, "XLA_FLAGS": flags}, stdout=subprocess.PIPE, text=True, check=True
    )
    table = Table("devices", "what", "figure", title="devices")
    for row in json.loads(done.stdout.splitlines()[-1]):
        table.add_row(*map(str, row))
    return table


def mesh_of(devices: int) -> Mesh:
    """Return a mesh of the first devices."""
    return Mesh(np.array(jax.devices()[:devices]), ("particles",))


def model(s: sy.State) -> Any:
    """Two variables, of which the sum is observed."""
    z = s.sample("z", dist.Normal(jnp.zeros(2), 1.0))
    s.observe("y", dist.Normal(z.sum(), 0.5), 1.0)
    return z


def filter_of(ys: Any) -> sy.Program:
    """A filter that resamples at every step."""

    def start(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("y", -0.5 * z**2)
        return z

    def step(q: sy.Program, y: Any) -> sy.Program:
        def transition(s: sy.State, z: Any) -> Any:
            z = s.sample("z", dist.Normal(0.9 * z, 0.5))
            s.factor("y", -0.5 * (y - z) ** 2)
            return z

        return sy.move(transition, sy.resample(q))

    return sy.scan(step, start, ys, keep=[])


class Speed(NamedTuple):
    """How many times as fast a program is on several devices as on one: medians of interleaved runs.

    Attributes:
        all_cores: next to one device, which XLA runs on all cores of the machine.
        one_core: next to one device on one core.
        work: the processor time of one device on one core, in seconds.
        processor: next to one device on one core, by processor time, which other work on the machine does not count
            for: the seconds of one device, over those that each of the others needs.
    """

    all_cores: float
    one_core: float
    work: float
    processor: float


def speed_up(q: sy.Program, devices: int) -> Speed:
    """Return how many times as fast a program is on several devices as on one."""

    def compiled(mesh: Mesh | None) -> Callable[[Any], Any]:
        return jax.jit(lambda key: sy.evaluate(q, key, particles=PARTICLES, mesh=mesh).log_z)

    one, many = compiled(None), compiled(mesh_of(devices))
    cores = os.sched_getaffinity(0)

    def seconds(f: Callable[[Any], Any], on: set[int]) -> tuple[float, float]:
        _pin(on)
        start, used = time.perf_counter(), time.process_time()
        jax.block_until_ready(f(KEY))
        return time.perf_counter() - start, time.process_time() - used

    ratios = []
    for _ in range(TIMES + 1):
        (alone, _), (single, work), (several, shared) = (
            seconds(one, cores),
            seconds(one, {min(cores)}),
            seconds(many, cores),
        )
        ratios.append(Speed(alone / several, single / several, work, work / (shared / devices)))
    _pin(cores)
    return Speed(*(median(column) for column in zip(*ratios[1:], strict=True)))


def _pin(cores: set[int]) -> None:
    """Have every thread of this process run on these cores."""
    for thread in os.listdir("/proc/self/task"):
        # It may have ended.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)


def bytes_sent(devices: int, size: int = 2**18, width: int = 2) -> tuple[int, int, int]:
    """Return how many bytes a device sends in one resample; how many those have that come to it; and plain `jit`'s.

    Plain `jit` is given particles that are shared out, and has to leave them so.
    """
    mesh, key = mesh_of(devices), particle_key(scattered(KEY), 0)
    split = NamedSharding(mesh, PartitionSpec("particles"))
    log_weights, x = jax.device_put((jax.random.normal(KEY, (size,)), jnp.zeros((size, width))), split)

    def resampled(log_weights: Any, x: Any) -> Any:
        a = ancestors(log_weights, "systematic", draw_noise(key, "systematic", size), size)
        moved = jax.lax.with_sharding_constraint((take(x, a), indices_of(a)), split)
        return moved, a.plans[0].rounds if isinstance(a, Routes) else None

    def on_mesh(log_weights: Any, x: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return resampled(log_weights, x)

    ours, plain = (jax.jit(f).lower(log_weights, x).compile() for f in (on_mesh, resampled))
    (_, indices), rounds = ours(log_weights, x)
    own = size // devices
    comes = (np.asarray(indices).reshape(devices, own) // own != np.arange(devices)[:, None]).sum(axis=1).max()
    # Slots and indices are four bytes each.
    each, messages = 4 * (width + 2), int(rounds[1:].sum()) * message_size(own)
    _, others = collectives(ours)
    return messages * each + sum(others), int(comes) * each, sum(map(sum, collectives(plain)))


def main() -> None:
    """Print the rows of the table."""
    rows: list[tuple[int, str, str]] = []
    for devices in (2, 4, 8):
        sent, comes, plain = bytes_sent(devices)
        rows.append((devices, "bytes that a device sends in one resample of 2^18 particles", f"{sent:,}"))
        rows.append((devices, "bytes of the particles that come to it", f"{comes:,}"))
        rows.append((devices, "bytes with plain jit", f"{plain:,}"))
    importance, filtering = program(model), filter_of(jnp.sin(jnp.arange(STEPS) * 0.3))
    for name, q in (("importance sampling", importance), (f"a filter of {STEPS} steps", filtering)):
        speed = speed_up(q, 2)
        rows.append((2, f"{name}, {PARTICLES:,} particles: times as fast as one device", f"{speed.all_cores:.2f}"))
        rows.append((2, f"{name}: times as fast as one device on one core", f"{speed.one_core:.2f}"))
        rows.append((2, f"{name}: the same by processor time", f"{speed.processor:.2f}"))
        rows.append((1, f"{name}: processor time for a million particles", f"{1e9 * speed.work / PARTICLES:.3g} ms"))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
