"""Pictures of videos and of what was found in them."""

import io
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from steelyard.experiments.folders import write
from steelyard.experiments.tracking.evaluation import Explained, reconstruction
from steelyard.experiments.tracking.shapes import PATCH
from steelyard.experiments.tracking.videos import Videos

COLOURS = ("tab:red", "tab:green", "tab:blue", "tab:orange", "tab:purple", "tab:cyan", "tab:pink", "tab:olive")


def save_reconstruction(videos: Videos, found: Explained, path: Path, rows: int = 2) -> Path:
    """Draw some videos, with the positions that were found, above how they are explained: the paper's Figure 4."""
    rows, length = min(rows, len(videos.frames)), videos.frames.shape[1]
    canvas = videos.frames.shape[-1]
    figure = Figure(figsize=(1.1 * length, 2.3 * rows), layout="constrained")
    axes = figure.subplots(2 * rows, length, squeeze=False)
    for row in range(rows):
        one: Any = jax.tree.map(lambda x: x[row], found)  # noqa: B023
        explained = reconstruction(one, canvas)
        for t in range(length):
            _frame(axes[2 * row, t], videos.frames[row, t], np.asarray(one.where[t]))
            _frame(axes[2 * row + 1, t], explained[t])
        axes[2 * row, 0].set_ylabel("video")
        axes[2 * row + 1, 0].set_ylabel("explained")
    return write(path, _png(figure))


def _frame(ax: Any, frame: Any, where: np.ndarray | None = None) -> None:
    ax.imshow(frame, cmap="gray_r", vmin=0, vmax=1)
    ax.set_xticks([])
    ax.set_yticks([])
    for d, (x, y) in enumerate(() if where is None else (where + 1) / 2 * (len(frame) - PATCH)):
        colour = COLOURS[d % len(COLOURS)]
        ax.add_patch(_square(x - 0.5, y - 0.5, colour))


def _square(x: float, y: float, colour: str) -> Any:
    return Rectangle((x, y), PATCH, PATCH, fill=False, edgecolor=colour, linewidth=1)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
