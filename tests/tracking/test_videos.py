"""Shapes, videos, and placing and finding things in them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.experiments.tracking.rendering import correlate, crop, energy, place
from steelyard.experiments.tracking.shapes import MARGIN, PATCH, SHAPES, images, mean_image
from steelyard.experiments.tracking.videos import SPEED, simulate


def test_nine_shapes_with_soft_edges() -> None:
    assert images().shape == (len(SHAPES), PATCH, PATCH) == (9, 28, 28)
    assert images().min() == 0 and images().max() == 1
    assert not images()[:, :MARGIN].any() and not images()[:, :, -MARGIN:].any()
    soft = ((images() > 0) & (images() < 1)).any(axis=(1, 2))
    assert soft[[list(SHAPES).index(name) for name in ("circle", "ring", "star", "triangle", "x", "diamond")]].all()
    areas = dict(zip(SHAPES, images().sum(axis=(1, 2)) / 400, strict=True))
    assert areas["square"] == 1
    np.testing.assert_allclose(areas["circle"], np.pi / 4, rtol=0.01)
    np.testing.assert_allclose([areas["triangle"], areas["diamond"]], 0.5, rtol=0.01)
    np.testing.assert_allclose(mean_image(), images().mean(axis=0))
    distances = ((images()[:, None] - images()[None]) ** 2).sum(axis=(2, 3)) + 1e3 * np.eye(9)
    assert distances.min() > 10


def test_videos_are_what_they_were_made_of() -> None:
    videos = simulate(jax.random.key(0), 40, objects=3, length=12)
    assert videos.frames.shape == (40, 12, 96, 96)
    assert videos.frames.min() >= 0 and videos.frames.max() <= 1
    assert (abs(videos.positions) <= 1).all()
    steps = jnp.linalg.norm(jnp.diff(videos.positions, axis=1), axis=-1)
    assert (steps < SPEED + 1e-5).all() and jnp.median(steps) > SPEED - 1e-5
    assert all(len(set(row)) == 3 for row in videos.shapes.tolist())
    first = videos.positions[:, 0]
    squared = ((first[:, :, None] - first[:, None]) ** 2).sum(axis=-1) + 10 * jnp.eye(3)[None]
    assert (squared > 0.5).all()
    known = jnp.asarray(images())
    placed = jax.vmap(lambda k, z: place(known[k], z, 96))(videos.shapes[3], videos.positions[3, 5])
    np.testing.assert_allclose(jnp.clip(placed.sum(axis=0), 0.0, 1.0), videos.frames[3, 5], atol=1e-5)


@pytest.mark.parametrize(("objects", "length", "canvas"), [(1, 2, 96), (5, 3, 96), (11, 2, 96), (2, 2, 48)])
def test_any_number_of_objects_and_frames(objects: int, length: int, canvas: int) -> None:
    videos = simulate(jax.random.key(1), 3, objects=objects, length=length, canvas=canvas)
    assert videos.frames.shape == (3, length, canvas, canvas)
    again = simulate(jax.random.key(1), 3, objects=objects, length=length, canvas=canvas)
    np.testing.assert_array_equal(videos.frames, again.frames)
    assert (videos.frames != simulate(jax.random.key(2), 3, objects=objects, length=length, canvas=canvas).frames).any()


def test_walls_reflect() -> None:
    """An object that leaves through one wall comes back from it: no step is longer than the speed, none shorter twice."""
    videos = simulate(jax.random.key(3), 20, objects=2, length=60)
    turned = jnp.diff(jnp.sign(jnp.diff(videos.positions, axis=1)), axis=1) != 0
    at_wall = abs(videos.positions[:, 1:-1]) > 1 - SPEED
    assert (at_wall | ~turned).all()
    assert turned.any()


def test_placing_and_cropping() -> None:
    patch = jnp.asarray(images()[5])
    corner = place(patch, jnp.array([-1.0, 1.0]), 96)
    np.testing.assert_allclose(corner[-28:, :28], patch, atol=1e-5)
    assert corner[:-28].sum() == 0
    position = jnp.array([0.3, -0.5])
    canvas = place(patch, position, 96)
    np.testing.assert_allclose(canvas.sum(), patch.sum(), rtol=1e-5)
    offset = (position + 1) * 34
    rows, columns = np.mgrid[:96, :96]
    middle = [(canvas * axis).sum() / canvas.sum() for axis in (columns, rows)]
    inside = [(patch * axis).sum() / patch.sum() for axis in np.mgrid[:28, :28][::-1]]
    np.testing.assert_allclose(middle, np.array(inside) + offset, rtol=1e-4)
    whole = jnp.array([10 / 34 - 1, 30 / 34 - 1])
    np.testing.assert_allclose(crop(place(patch, whole, 96), whole), patch, atol=1e-4)
    beyond = place(patch, jnp.array([3.0, 0.0]), 96)
    assert beyond.sum() == 0
    slope = jax.grad(lambda z: place(patch, z, 96)[52:, :].sum())(jnp.array([0.1, 0.1]))
    assert jnp.isfinite(slope).all() and slope[1] > 0


def test_correlation_finds_an_object() -> None:
    patch = jnp.asarray(images()[7])
    position = jnp.array([20 / 34 - 1, 50 / 34 - 1])
    fits = correlate(place(patch, position, 96), patch)
    assert fits.shape == (69, 69)
    assert np.unravel_index(int(jnp.argmax(fits)), fits.shape) == (50, 20)
    frame = jax.random.uniform(jax.random.key(0), (40, 40))
    direct = jnp.array([[(frame[i : i + 28, j : j + 28] * patch).sum() for j in range(13)] for i in range(13)])
    np.testing.assert_allclose(correlate(frame, patch), direct, rtol=1e-4)
    squares = jnp.array([[(frame[i : i + 28, j : j + 28] ** 2).sum() for j in range(13)] for i in range(13)])
    np.testing.assert_allclose(energy(frame), squares, rtol=1e-4)
