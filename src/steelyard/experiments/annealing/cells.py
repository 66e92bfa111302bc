"""Finished cells on disk: a run that was interrupted goes on where it stopped.

A cell is two files with all settings in their name: metrics as JSON, parameters and the history of training as npz. The
JSON is written last, so that a cell is finished if and only if it is there. Both files repeat the settings.
"""

import json
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import steelyard as sy
from steelyard.experiments.annealing.evaluation import Metrics
from steelyard.experiments.annealing.model import Sampler
from steelyard.experiments.annealing.settings import Cell
from steelyard.experiments.annealing.train import History, shapes
from steelyard.experiments.folders import write

FOLDER = "cells"
BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Result:
    """A finished cell.

    Attributes:
        cell: the settings.
        plain: the metrics without resampling at test time.
        resampled: the metrics with it.
        seconds: how long training and evaluation took, compilation included.
        samplers: what was learned, stacked over seeds.
        history: how training went.
    """

    cell: Cell
    plain: Metrics
    resampled: Metrics
    seconds: float
    samplers: Sampler
    history: History

    def metrics(self, *, resampling: bool) -> Metrics:
        """Return the metrics with or without resampling at test time."""
        return self.resampled if resampling else self.plain


def save(result: Result, out: Path) -> Path:
    """Keep a finished cell.

    Args:
        result: the cell.
        out: the folder of the results.

    Returns:
        The path of its JSON file.
    """
    settings, path = result.cell.as_dict(), _path(result.cell, out)
    arrays = {f"sampler{name}": np.asarray(x) for name, x in _leaves(result.samplers).items()}
    arrays |= {f"history.{name}": x for name, x in result.history._asdict().items()}
    _write_arrays(path.with_suffix(".npz"), arrays | {"settings": np.array(json.dumps(settings))})
    metrics = {
        name: {key: np.asarray(x, float).tolist() for key, x in values._asdict().items()}
        for name, values in (("plain", result.plain), ("resampled", result.resampled))
    }
    content = {"settings": settings, **metrics, "seconds": result.seconds}
    return write(path, json.dumps(content, indent=1).encode())


def load(cell: Cell, out: Path) -> Result | None:
    """Return a cell that was finished before.

    Args:
        cell: the settings.
        out: the folder of the results.

    Returns:
        The cell; None where it was not finished.

    Raises:
        CheckpointError: a file of the cell is damaged, missing, or holds another cell.
    """
    path = _path(cell, out)
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        settings = content["settings"]
        plain, resampled = (_metrics(cell, content[name]) for name in ("plain", "resampled"))
        seconds = float(content["seconds"])
    except BROKEN as error:
        raise _damaged(path, error) from error
    _check_settings(cell, settings, path)
    arrays = path.with_suffix(".npz")
    try:
        with arrays.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
        settings = json.loads(str(found["settings"]))
        samplers = _samplers(cell, found)
        history = History(*(found[f"history.{name}"] for name in History._fields))
    except BROKEN as error:
        raise _damaged(arrays, error) from error
    _check_settings(cell, settings, arrays)
    return Result(cell, plain, resampled, seconds, samplers, history)


def _path(cell: Cell, out: Path) -> Path:
    return out / FOLDER / f"{cell.name}.json"


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp.npz")
    try:
        np.savez_compressed(temporary, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _leaves(samplers: Sampler) -> dict[str, Any]:
    arrays = eqx.filter(samplers, eqx.is_array_like)
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(arrays)}


def _samplers(cell: Cell, found: dict[str, np.ndarray]) -> Sampler:
    """Put the parameters where they belong."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes(cell.densities, cell.seeds))
    arrays = [found[f"sampler{jax.tree_util.keystr(path)}"] for path, _ in leaves]
    for (path, expected), array in zip(leaves, arrays, strict=True):
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise ValueError(f"{jax.tree_util.keystr(path)} is {array.dtype}{array.shape}, not {expected}")
    return jax.tree_util.tree_unflatten(tree, [jnp.asarray(array) for array in arrays])


def _metrics(cell: Cell, content: dict[str, Any]) -> Metrics:
    metrics = Metrics(*(np.asarray(content[name], float) for name in Metrics._fields))
    if any(x.shape[:1] != (cell.seeds,) for x in metrics):
        raise ValueError(f"the metrics are not those of {cell.seeds} seeds")
    return metrics


def _check_settings(cell: Cell, settings: Any, path: Path) -> None:
    if settings != cell.as_dict():
        raise sy.CheckpointError(
            f"{path} should hold the cell {cell.as_dict()}, but holds {settings}. Move it away, or "
            "choose another folder."
        )


def _damaged(path: Path, error: Exception) -> sy.CheckpointError:
    return sy.CheckpointError(
        f"{path} is damaged or not a cell of the table ({type(error).__name__}: {error}). Delete the cell's .json and "
        ".npz to compute it again, or choose another folder."
    )
