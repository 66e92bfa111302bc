"""The cells of Table 2: one method on test videos of one kind, video by video; what is finished stays on disk."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

import steelyard as sy
from steelyard.experiments.folders import write
from steelyard.experiments.tracking.evaluation import Explained, explained, tracked
from steelyard.experiments.tracking.model import STEP
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.pixels import Shown
from steelyard.experiments.tracking.rows import COLUMNS, Row
from steelyard.experiments.tracking.shapes import images
from steelyard.experiments.tracking.videos import CANVAS, Videos, simulate

TEST = 3_000_000


@dataclass(frozen=True)
class Measured:
    """What is measured of one test video; `complete` tells whether no object was lost."""

    log_joint: float
    weighted: float
    log_likelihood: float
    ess: float
    pixels: float
    complete: float


@dataclass(frozen=True)
class Cell:
    """A row of the table on videos with so many objects and frames."""

    row: Row
    objects: int
    length: int

    @property
    def kind(self) -> tuple[int, int]:
        """What kind of videos: how many objects and frames."""
        return self.objects, self.length

    @property
    def label(self) -> str:
        """The method, its budget, and the videos."""
        return f"{self.row.label}, D={self.objects}, T={self.length}"

    @property
    def name(self) -> str:
        """A name for the cell's file."""
        return f"{self.row.name.lower()}_L{self.row.particles}_K{self.row.sweeps}_D{self.objects}_T{self.length}"

    @property
    def paper(self) -> float | None:
        """The paper's number."""
        return dict(zip(COLUMNS, self.row.paper, strict=False)).get(self.kind)


def held_out(objects: int, length: int, count: int) -> Videos:
    """Return the first videos of a test set, which do not depend on how many are asked for."""
    key = jax.random.fold_in(jax.random.key(TEST), 1000 * objects + length)
    one = [simulate(jax.random.fold_in(key, number), 1, objects, length) for number in range(count)]
    return jax.tree.map(lambda *xs: jnp.concatenate(xs), *one)


def fill(
    cell: Cell,
    networks: Networks,
    videos: int,
    out: Path | None,
    about: str,
    report: Callable[[int], None] = lambda done: None,
) -> list[Measured]:
    """Measure a cell on so many test videos; those that were measured before are read from its file.

    Args:
        cell: which cell.
        networks: the networks of its method.
        videos: how many test videos.
        out: the folder of the cells; None keeps nothing.
        about: what the file must have been made from: a digest of the networks.
        report: called with the number of videos that are done.
    """
    found = [] if out is None else _load(out / f"{cell.name}.json", about)
    sets = held_out(cell.objects, cell.length, videos)
    for number in range(len(found), videos):
        report(number)
        video = jax.tree.map(lambda x: x[number : number + 1], sets)  # noqa: B023
        result = explain(cell.row, networks, video, number)
        found.append(measured(result, video))
        if out is not None:
            _save(out / f"{cell.name}.json", about, found)
    report(videos)
    return found[:videos]


def measured(found: Explained, video: Videos) -> Measured:
    """Measure how one video was explained."""
    tracking = tracked(found, video)
    return Measured(
        log_joint=float(found.log_joint[0]),
        weighted=float(found.weighted[0]),
        log_likelihood=float(found.log_likelihood[0]),
        ess=float(found.ess[0]),
        pixels=tracking.mean,
        complete=tracking.complete,
    )


def explain(row: Row, networks: Networks, videos: Videos, number: int) -> Explained:
    """Run a method on videos, one after the other."""
    run = _compiled(row, videos.shapes.shape[-1])
    key = jax.random.fold_in(jax.random.key(1), number)
    each = [run(networks, frames, jax.random.fold_in(key, i)) for i, frames in enumerate(videos.frames)]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *each)


@lru_cache
def _compiled(row: Row, objects: int) -> Any:
    @eqx.filter_jit
    def run(networks: Networks, frames: Any, key: Any) -> Explained:
        return explained(sy.evaluate(row.program(networks, frames, objects), key, particles=row.particles))

    return run


def averages(found: list[Measured]) -> dict[str, tuple[float, float]]:
    """Return the mean over videos of each quantity, and its standard error."""
    columns = {name: column(found, name) for name in asdict(found[0])}
    return {name: (float(x.mean()), standard_error(x)) for name, x in columns.items()}


def column(found: list[Measured], name: str) -> Float[np.ndarray, "videos"]:
    """Return one quantity of all videos."""
    return np.array([getattr(x, name) for x in found])


def standard_error(x: Float[np.ndarray, "videos"]) -> float:
    """Return the standard error of a mean; nan for a single number."""
    return float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")


def per_pixel(log_joint: float, length: int) -> float:
    """Return log p(x, z) for each pixel of a video."""
    return log_joint / (length * CANVAS**2)


def _save(path: Path, about: str, found: list[Measured]) -> None:
    write(path, json.dumps({"about": about, "videos": [asdict(x) for x in found]}, indent=1).encode())


def _load(path: Path, about: str) -> list[Measured]:
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text())
        found = [Measured(**{k: float(v) for k, v in x.items()}) for x in content["videos"]]
        same = content["about"] == about
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise sy.CheckpointError(f"{path} is damaged ({error}). Delete it to measure the cell again.") from error
    if not same:
        raise sy.CheckpointError(f"{path} was measured with other networks. Delete it, or choose another folder.")
    return found


def ceiling(objects: int, length: int, count: int) -> float:
    """Return log p(x, z) of the true shapes and positions, without features: what a perfect decoder would reach."""
    videos = held_out(objects, length, count)
    shapes = jnp.asarray(images())[videos.shapes]

    def one(shapes: Any, positions: Any, frames: Any) -> Any:
        seen = sum(Shown(shapes, z, CANVAS).log_prob(x) for z, x in zip(positions, frames, strict=True))
        first = dist.Normal(0.0, 1.0).log_prob(positions[0]).sum()
        return seen + first + dist.Normal(positions[:-1], STEP).log_prob(positions[1:]).sum()

    return float(jax.vmap(one)(shapes, videos.positions, videos.frames).mean())
