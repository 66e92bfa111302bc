"""The nine shapes that bounce: grey images, drawn with soft edges."""

from collections.abc import Callable
from functools import cache

import numpy as np
from jaxtyping import Bool, Float

SIDE, MARGIN = 20, 4
PATCH = SIDE + 2 * MARGIN
# A pixel is the average of so many points, squared.
POINTS = 16

Grid = Float[np.ndarray, "n n"]
Inside = Callable[[Grid, Grid], Bool[np.ndarray, "n n"]]


def _star(x: Grid, y: Grid) -> Bool[np.ndarray, "n n"]:
    """Five points: of every ray from the middle the part up to an edge between a point and a notch."""
    angle = np.mod(np.arctan2(x, -y), 2 * np.pi / 5)
    angle = np.minimum(angle, 2 * np.pi / 5 - angle)
    notch = np.cos(2 * np.pi / 5) / np.cos(np.pi / 5)
    tip, valley = np.array([1.0, 0.0]), notch * np.array([np.cos(np.pi / 5), np.sin(np.pi / 5)])
    edge = valley - tip
    radius = np.hypot(x, y)
    across = edge[0] * (radius * np.sin(angle) - tip[1]) - edge[1] * (radius * np.cos(angle) - tip[0])
    return across >= 0


SHAPES: dict[str, Inside] = {
    "circle": lambda x, y: x**2 + y**2 <= 1,
    "ring": lambda x, y: (x**2 + y**2 <= 1) & (x**2 + y**2 >= 0.55**2),
    "diamond": lambda x, y: abs(x) + abs(y) <= 1,
    "plus": lambda x, y: (abs(x) <= 0.2) | (abs(y) <= 0.2),
    "square": lambda x, y: (abs(x) <= 1) & (abs(y) <= 1),
    "star": _star,
    "triangle": lambda x, y: abs(x) <= (y + 1) / 2,
    "upside-down triangle": lambda x, y: abs(x) <= (1 - y) / 2,
    "x": lambda x, y: (abs(x - y) <= 0.35) | (abs(x + y) <= 0.35),
}


@cache
def images() -> Float[np.ndarray, "shapes patch patch"]:
    """Return the shapes, 20 x 20 in the middle of a patch of 28 x 28, with grey values from 0 to 1."""
    middle = (np.arange(SIDE * POINTS) + 0.5) / (SIDE * POINTS) * 2 - 1
    x, y = np.meshgrid(middle, middle)
    small = [
        inside(x, y).astype(float).reshape(SIDE, POINTS, SIDE, POINTS).mean(axis=(1, 3)) for inside in SHAPES.values()
    ]
    return np.pad(np.stack(small), ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))).astype(np.float32)


def mean_image() -> Float[np.ndarray, "patch patch"]:
    """Return the average of all shapes: what an object looks like before anything is known of it."""
    return images().mean(axis=0)
