"""How well videos are explained, and how far the objects that were found are from those that are there."""

from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import steelyard as sy
from steelyard.experiments.tracking.pixels import render
from steelyard.experiments.tracking.shapes import PATCH, images
from steelyard.experiments.tracking.videos import Videos

# An object is lost if it is so many pixels away, on average over the frames.
LOST = 5.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Explained:
    """A video as a sampler explains it.

    Attributes:
        log_joint: log p(x, z), averaged over particles without weights, as in the paper.
        weighted: the same with weights.
        log_likelihood: log p(x | z), weighted.
        ess: the effective sample size.
        objects: what the objects look like in the particle of the largest weight.
        where: their positions there.
    """

    log_joint: Float[Array, "..."]
    weighted: Float[Array, "..."]
    log_likelihood: Float[Array, "..."]
    ess: Float[Array, "..."]
    objects: Float[Array, "... D patch patch"]
    where: Float[Array, "... T D 2"]


def explained(out: sy.Evaluation) -> Explained:
    """Summarise the particles of one video."""
    joint = sum(out.log_density.values(), start=jnp.zeros(out.particles))
    frames = [x for a, x in out.log_density.items() if a.startswith("frame")]
    likelihood = sum(frames, start=jnp.zeros(out.particles))
    share, best = out.normalized_weights, jnp.argmax(out.log_weight)
    scene = out.value
    return Explained(
        joint.mean(),
        share @ joint,
        share @ likelihood,
        out.ess,
        scene.objects[best],
        jnp.stack([z[best] for z in scene.where]),
    )


def reconstruction(found: Explained, canvas: int) -> Float[Array, "T canvas canvas"]:
    """Return the frames of one video as they are explained."""
    return jax.vmap(lambda where: render(found.objects, where, canvas))(found.where)


class Tracking(NamedTuple):
    """How well objects were followed: distances in pixels by frame and object, in the order of the true objects."""

    distances: Float[np.ndarray, "videos T D"]

    @property
    def mean(self) -> float:
        """The mean distance."""
        return float(self.distances.mean())

    @property
    def complete(self) -> float:
        """The share of videos in which no object is lost."""
        return float((self.distances.mean(axis=1) < LOST).all(axis=-1).mean())


def tracked(found: Explained, videos: Videos) -> Tracking:
    """Compare what was found in videos with what is there, under the best matching of objects for each video."""
    canvas = videos.frames.shape[-1]
    ours = _centres(found.objects[:, None], found.where, canvas)
    theirs = _centres(jnp.asarray(images())[videos.shapes][:, None], videos.positions, canvas)
    distances = np.asarray(jnp.linalg.norm(ours[:, :, :, None] - theirs[:, :, None], axis=-1))
    objects = np.arange(distances.shape[-1])
    orders = [list(order) for order in permutations(objects)]
    each = np.stack([distances[:, :, order, objects] for order in orders])
    best = each.mean(axis=(2, 3)).argmin(axis=0)
    return Tracking(each[best, np.arange(len(distances))])


def _centres(objects: Float[Array, "*d patch patch"], where: Float[Array, "*d 2"], canvas: int) -> Float[Array, "*d 2"]:
    """Return the centres of mass of objects at positions, in pixels: an image may be off the middle of its patch."""
    mass, line = objects.sum(axis=(-2, -1)) + 1e-6, jnp.arange(PATCH)
    across, down = objects.sum(axis=-2) @ line / mass, objects.sum(axis=-1) @ line / mass
    return (where + 1) / 2 * (canvas - PATCH) + jnp.stack(jnp.broadcast_arrays(across, down), axis=-1)
