"""Videos of shapes that bounce off the walls, simulated."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from steelyard.experiments.tracking.rendering import place
from steelyard.experiments.tracking.shapes import images

CANVAS, SPEED = 96, 0.1
# Objects begin at squared distances above this, which leaves room for three; for more of them it shrinks.
APART, TRIES = 0.5, 64


class Videos(NamedTuple):
    """Frames, and what they were made of: which shapes, and where they are; for evaluation only."""

    frames: Float[Array, "... T canvas canvas"]
    positions: Float[Array, "... T D 2"]
    shapes: Int[Array, "... D"]


@partial(jax.jit, static_argnames=("count", "objects", "length", "canvas"))
def simulate(key: PRNGKeyArray, count: int, objects: int = 3, length: int = 10, canvas: int = CANVAS) -> Videos:
    """Simulate videos.

    Args:
        key: a key; the same key gives the same videos.
        count: how many videos.
        objects: how many objects in each, of different shapes as long as there are enough.
        length: how many frames.
        canvas: the height and width of a frame.
    """
    one = partial(simulate_one, objects=objects, length=length, canvas=canvas)
    return jax.lax.map(one, jax.random.split(key, count), batch_size=50)


def simulate_one(key: PRNGKeyArray, objects: int = 3, length: int = 10, canvas: int = CANVAS) -> Videos:
    """Simulate one video."""
    k1, k2, k3 = jax.random.split(key, 3)
    known = jnp.asarray(images())
    shapes = jnp.concatenate(
        [jax.random.permutation(k, len(known)) for k in jax.random.split(k1, -(-objects // len(known)))]
    )[:objects]
    angle = jax.random.uniform(k2, (objects,), maxval=2 * jnp.pi)
    velocity = SPEED * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
    # A straight line in a room without walls, folded back into the room.
    straight = _starts(k3, objects)[None] + jnp.arange(length)[:, None, None] * velocity[None]
    positions = 1 - jnp.abs(jnp.mod(straight + 1, 4) - 2)
    placed = jax.vmap(jax.vmap(partial(place, canvas=canvas)), (None, 0))(known[shapes], positions)
    return Videos(jnp.clip(placed.sum(axis=1), 0.0, 1.0), positions, shapes)


def _starts(key: PRNGKeyArray, objects: int) -> Float[Array, "D 2"]:
    """Return places that are apart: of several tries the first that is wide enough, or else the widest."""
    tries = jax.random.uniform(key, (TRIES, objects, 2), minval=-1.0, maxval=1.0)
    squared = ((tries[:, :, None] - tries[:, None]) ** 2).sum(axis=-1) + 1e3 * jnp.eye(objects)[None]
    smallest = squared.min(axis=(1, 2))
    return tries[jnp.where(jnp.any(smallest > APART), jnp.argmax(smallest > APART), jnp.argmax(smallest))]
