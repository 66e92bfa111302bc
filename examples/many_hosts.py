"""A filter and a training run over the devices of several processes, here or on many hosts.

    python examples/many_hosts.py                                     # one process, all of its devices
    python examples/many_hosts.py --processes 2 --process 0 &         # two processes on this machine
    python examples/many_hosts.py --processes 2 --process 1
    srun python examples/many_hosts.py --cluster                      # as many as Slurm starts

Each process runs this program, and `jax.devices()` are the devices of all of them. The same devices give the same bits,
however many processes they belong to. With `--checkpoint` a run that was killed goes on: start all processes again.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import typer
from jax.experimental import multihost_utils
from jax.sharding import Mesh

import steelyard as sy

OBSERVED = np.sin(np.arange(20.0)).astype(np.float32)
DATA = np.linspace(-2.0, 2.0, 64, dtype=np.float32)


def start(s: sy.State) -> Any:
    """z_0 ~ N(0, 1), before anything is observed."""
    s.factor("y", 0.0)
    return s.sample("z", dist.Normal(0.0, 1.0))


def step(q: sy.Program, y: Any) -> sy.Program:
    """z_t ~ N(0.9 z_(t-1), 0.5^2), y_t ~ N(z_t, 0.4^2), after resampling."""

    def transition(s: sy.State, z: Any) -> Any:
        z = s.sample("z", dist.Normal(0.9 * z, 0.5))
        s.observe("y", dist.Normal(z, 0.4), y)
        return z

    return sy.move(transition, sy.resample(q))


def exact_log_z() -> float:
    """The Kalman filter's."""
    mean, variance, log_z = 0.0, 1.0, 0.0
    for y in OBSERVED:
        mean, variance = 0.9 * mean, 0.81 * variance + 0.25
        total = variance + 0.16
        log_z -= 0.5 * (np.log(2 * np.pi * total) + (y - mean) ** 2 / total)
        mean, variance = mean + variance / total * (y - mean), variance * 0.16 / total
    return float(log_z)


def posterior(guide: dict[str, Any], x: Any) -> sy.Program:
    """Propose z for z ~ N(0, 1), x ~ N(z, 1); the best guide is N(x / 2, 1 / 2)."""

    def model(s: sy.State) -> None:
        s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), x)

    def proposal(s: sy.State) -> None:
        s.sample("z", dist.Normal(guide["slope"] * x, jnp.exp(guide["log_scale"])))

    return sy.algorithms.svi(model, proposal)


def digest(tree: Any) -> str:
    """Return a hash of all bits of arrays that lie on all devices."""
    whole = multihost_utils.process_allgather(tree, tiled=True)
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(whole))).hexdigest()[:16]


def main(
    processes: Annotated[int, typer.Option(min=1, help="How many processes there are.")] = 1,
    process: Annotated[int, typer.Option(min=0, help="Which of them this is.")] = 0,
    coordinator: Annotated[str, typer.Option(help="Host and port of the first one.")] = "127.0.0.1:29510",
    cluster: Annotated[bool, typer.Option(help="Ask the cluster for all three.")] = False,
    timeout: Annotated[int, typer.Option(min=1, help="After how many seconds a silent process counts as lost.")] = 60,
    particles: Annotated[int, typer.Option(min=1, help="How many particles.")] = 100_000,
    steps: Annotated[int, typer.Option(min=1, help="How many steps of training.")] = 2_000,
    checkpoint: Annotated[Path | None, typer.Option(help="Where to keep the training run.")] = None,
) -> None:
    """Run a filter over all devices, and train over all devices."""
    # Before anything asks JAX for devices.
    if cluster:
        jax.distributed.initialize(heartbeat_timeout_seconds=timeout)
    elif processes > 1:
        jax.distributed.initialize(coordinator, processes, process, heartbeat_timeout_seconds=timeout)

    def tell(*words: Any) -> None:
        if jax.process_index() == 0:
            print(*words, flush=True)

    devices = np.array(jax.devices())
    tell("devices", len(devices), "processes", jax.process_count())

    q = sy.scan(step, start, jnp.asarray(OBSERVED), keep=[])
    out = sy.evaluate(q, jax.random.key(0), particles=particles, mesh=Mesh(devices, ("particles",)))
    tell("log Z", f"{float(out.log_z):.4f}", "exact", f"{exact_log_z():.4f}")
    tell("particles", digest((out.trace["z"], out.ancestors, out.log_weight)))

    result = sy.train(
        posterior,
        {"slope": jnp.zeros(()), "log_scale": jnp.zeros(())},
        optimizer=optax.adam(optax.cosine_decay_schedule(0.02, steps)),
        steps=steps,
        key=jax.random.key(1),
        particles=10,
        data=DATA,
        batch_size=16,
        checkpoint=checkpoint,
        checkpoint_seconds=0.2,
        progress=False,
        callback=lambda result: tell("step", len(result.history)),
        mesh=Mesh(devices, ("data",)),
    )
    tell("slope", f"{float(result.models['slope']):.3f}", "exact 0.500")
    tell("trained", digest(result.models), "last loss", float(result.history.loss[-1]))


if __name__ == "__main__":
    typer.run(main)
