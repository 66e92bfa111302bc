"""`steelyard table2 train`: learn the generative model and the proposals together, from videos alone."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.text import Text

import steelyard as sy
from steelyard.experiments import folders
from steelyard.experiments.tracking import figures, parameters
from steelyard.experiments.tracking.evaluation import Explained, explained, tracked
from steelyard.experiments.tracking.model import sampler
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.settings import Method, Setting, Stage
from steelyard.experiments.tracking.videos import simulate, simulate_one

# How many seconds pass between two looks at how well it tracks, and at how many videos.
LOOK, LOOKED_AT = 120.0, 4


def train(method: Method, setting: Setting, out: Path, console: Console) -> Networks:
    """Train the networks of a method; what is there of an interrupted run is taken up.

    Args:
        method: "apg" or "rws".
        setting: what is to be learned from, and for how long.
        out: the folder for checkpoints, the log, reconstructions on the way, and the parameters at the end.
        console: where to print.

    Returns:
        The networks.

    Raises:
        ArgumentError: the folder cannot be written.
        CheckpointError: the folder holds the checkpoints of another run.
    """
    folders.prepare(out)
    networks = Networks(jax.random.fold_in(jax.random.key(setting.seed), 1), setting.canvas)
    look = _Look(method, setting, out, console)
    for number, stage in enumerate(setting.stages):
        sweeps = stage.sweeps if method == "apg" else 0
        console.print(
            f"{method}, stage {number + 1} of {len(setting.stages)}: {stage.length} frames, {stage.particles} "
            f"particles, {sweeps} sweeps, {stage.steps:,} steps of {setting.batch} videos",
            highlight=False,
        )
        result = sy.train(
            lambda networks, number: _program(networks, number, setting, stage.length, sweeps),  # noqa: B023
            networks,
            optimizer=_optimizer(stage),
            steps=stage.steps,
            key=jax.random.fold_in(jax.random.key(setting.seed), 2 + number),
            particles=stage.particles,
            data=jnp.arange(setting.videos),
            batch_size=setting.batch,
            checkpoint=out / f"checkpoint-{method}-{number + 1}",
            callback=lambda so_far: look(number, stage, so_far),  # noqa: B023
        )
        networks = result.models
        look(number, stage, result, now=True)
        if result.interrupted:
            console.print("Interrupted. The same command goes on from here.")
            return networks
    about = {"method": method, "setting": asdict(setting), "log": look.lines[-1]}
    console.print(Text(f"Written: {parameters.save(networks, parameters.path(method, out), about)}"), soft_wrap=True)
    return networks


def _program(networks: Networks, number: Any, setting: Setting, length: int, sweeps: int) -> Any:
    """Return the sampler of one of the training videos, which is made when it is needed."""
    key = jax.random.fold_in(jax.random.key(setting.seed), number)
    video = simulate_one(key, setting.objects, length, setting.canvas)
    return sampler(networks, video.frames, setting.objects, sweeps)


def _optimizer(stage: Stage) -> optax.GradientTransformation:
    rate = optax.cosine_decay_schedule(stage.rate, stage.steps, alpha=0.1)
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(rate, b1=0.9, b2=0.99))


class _Look:
    """Looks now and then at videos that are not trained on: a line in the log, and a picture."""

    def __init__(self, method: Method, setting: Setting, out: Path, console: Console) -> None:
        self._method, self._setting, self._out, self._console = method, setting, out, console
        self._began = self._last = time.monotonic()
        self._log = out / f"log-{method}.jsonl"
        self._explain: dict[int, Any] = {}
        self.lines = self._log.read_text().splitlines() if self._log.exists() else []

    def __call__(self, number: int, stage: Stage, result: sy.TrainResult, *, now: bool = False) -> None:
        if not now and time.monotonic() - self._last < LOOK:
            return
        videos = self._videos(stage.length)
        if stage.length not in self._explain:
            self._explain[stage.length] = self._compiled(stage)
        found: Explained = self._explain[stage.length](result.models, videos.frames)
        tracking = tracked(found, videos)
        line = {
            "stage": number + 1,
            "step": len(result.history),
            "log p(x, z)": round(float(found.log_joint.mean()), 1),
            "weighted": round(float(found.weighted.mean()), 1),
            "ESS": round(float(found.ess.mean()), 2),
            "pixels": round(tracking.mean, 2),
            "complete": round(tracking.complete, 2),
            "skipped": int(result.history.skipped.sum()),
            "seconds": round(time.monotonic() - self._began),
        }
        self.lines.append(json.dumps(line))
        self._console.print(self.lines[-1], highlight=False, soft_wrap=True)
        folders.write(self._log, ("\n".join(self.lines) + "\n").encode())
        figures.save_reconstruction(videos, found, self._out / f"reconstruction-{self._method}.png")
        self._last = time.monotonic()

    def _videos(self, length: int) -> Any:
        key = jax.random.fold_in(jax.random.key(self._setting.seed), 1_000_000)
        return simulate(key, LOOKED_AT, self._setting.objects, length, self._setting.canvas)

    def _compiled(self, stage: Stage) -> Any:
        sweeps = stage.sweeps if self._method == "apg" else 0

        @eqx.filter_jit
        def explain(networks: Networks, frames: Any) -> Explained:
            def one(frames: Any, key: Any) -> Explained:
                q = sampler(networks, frames, self._setting.objects, sweeps)
                return explained(sy.evaluate(q, key, particles=stage.particles))

            return jax.vmap(one)(frames, jax.random.split(jax.random.key(0), len(frames)))

        return explain
