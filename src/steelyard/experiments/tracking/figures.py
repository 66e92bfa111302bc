"""Pictures of videos and of what was found in them."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from steelyard.experiments.folders import write
from steelyard.experiments.tracking.cells import Cell, Measured, averages, explain, held_out
from steelyard.experiments.tracking.evaluation import Explained, reconstruction
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.shapes import PATCH
from steelyard.experiments.tracking.videos import Videos

# Of a longer video so many frames are drawn, as far from each other as they can be.
MOST_FRAMES = 12
COLOURS = ("tab:red", "tab:green", "tab:blue", "tab:orange", "tab:purple", "tab:cyan", "tab:pink", "tab:olive")


def save_all(networks: Mapping[str, Networks], results: Mapping[Cell, list[Measured]], out: Path) -> dict[str, Path]:
    """Draw everything that there is to be seen of a table.

    Args:
        networks: the networks of each method.
        results: the cells of the table.
        out: the folder of the results.

    Returns:
        The paths of the figures, by what they show.
    """
    # The last method on the first kind of videos: in the whole table, APG with the most sweeps on those of Figure 4.
    shown = [cell for cell in results if cell.kind == next(iter(results)).kind][-1]
    videos = held_out(shown.objects, shown.length, 2)
    found = explain(shown.row, networks[shown.row.networks], videos, 0)
    return {
        "tracked": save_animation(videos, found, out / "tracked.gif"),
        "figure4": save_reconstruction(videos, found, out / "figure4.png"),
        "sweeps": save_sweeps(results, out / "sweeps.png"),
    }


def save_animation(videos: Videos, found: Explained, path: Path, number: int = 0) -> Path:
    """Draw one video as it moves: what was found, and how it is explained."""
    one: Any = jax.tree.map(lambda x: x[number], found)
    frames, explained = videos.frames[number], reconstruction(one, videos.frames.shape[-1])
    pictures = []
    for t, frame in enumerate(frames):
        figure = Figure(figsize=(5, 2.7), layout="constrained")
        left, right = figure.subplots(1, 2)
        _frame(left, frame, np.asarray(one.where[t]))
        _frame(right, explained[t])
        left.set_title(f"frame {t + 1}")
        right.set_title("explained")
        pictures.append(Image.open(io.BytesIO(_png(figure))).convert("P", palette=Image.Palette.ADAPTIVE))
    buffer = io.BytesIO()
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], duration=250, loop=0)
    return write(path, buffer.getvalue())


def save_sweeps(results: Mapping[Cell, list[Measured]], path: Path) -> Path:
    """Draw log p(x, z) and log p(x | z) by the number of sweeps, where sweeps times particles are the same."""
    kinds = list(dict.fromkeys(cell.kind for cell in results))
    figure = Figure(figsize=(4.2 * len(kinds), 3.6), layout="constrained")
    for ax, (objects, length) in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        chosen = [c for c in results if c.kind == (objects, length) and c.row.leapfrog is None]
        labels = [f"{c.row.name}\nL={c.row.particles}\nK={c.row.sweeps}" for c in chosen]
        for quantity, label in (
            ("log_joint", "log p(x, z), without weights"),
            ("weighted", "log p(x, z), weighted"),
            ("log_likelihood", "log p(x | z), weighted"),
        ):
            means = [averages(results[c])[quantity] for c in chosen]
            errors = [0.0 if np.isnan(error) else error for _, error in means]
            ax.errorbar(range(len(chosen)), [mean for mean, _ in means], errors, marker="o", capsize=3, label=label)
        ax.set_xticks(range(len(chosen)), labels)
        ax.set_title(f"D = {objects}, T = {length}")
        ax.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    return write(path, _png(figure))


def save_reconstruction(videos: Videos, found: Explained, path: Path, rows: int = 2) -> Path:
    """Draw some videos, with the positions that were found, above how they are explained: the paper's Figure 4."""
    rows, (length, canvas) = min(rows, len(videos.frames)), videos.frames.shape[1:3]
    times = np.unique(np.linspace(0, length - 1, min(length, MOST_FRAMES)).round().astype(int))
    figure = Figure(figsize=(1.1 * len(times), 2.3 * rows), layout="constrained")
    axes = figure.subplots(2 * rows, len(times), squeeze=False)
    for row in range(rows):
        one: Any = jax.tree.map(lambda x: x[row], found)  # noqa: B023
        explained = reconstruction(one, canvas)
        for column, t in enumerate(times):
            _frame(axes[2 * row, column], videos.frames[row, t], np.asarray(one.where[t]))
            _frame(axes[2 * row + 1, column], explained[t])
            axes[0, column].set_title(f"{t + 1}", fontsize="small")
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
