"""The generative model of appendix G.2 and its proposals, as programs for one particle.

Variables: "what", the features of all objects; "where 0", "where 1", ..., the positions of all objects in each frame.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray

import steelyard as sy
from steelyard.experiments.tracking.networks import WHAT, Networks
from steelyard.experiments.tracking.pixels import Shown
from steelyard.experiments.tracking.rendering import correlate, crop, energy, place
from steelyard.experiments.tracking.shapes import mean_image

# How far an object moves between frames, as far as the model knows.
STEP = 0.2
# Where an object is looked for: within so much of where it was in the frame before; anywhere else costs so many pixels.
REACH, ELSEWHERE = 0.1, 30.0
# How much a bright pixel under an object counts against it, which it does not explain.
UNEXPLAINED = 0.4
# Of longer videos than this, the objects of a frame are found in a loop.
LONG = 20

Frames = Float[Array, "T canvas canvas"]
Objects = Float[Array, "D patch patch"]


class Scene(NamedTuple):
    """What the model returns, and the kernels need: what its objects look like, and where they are."""

    objects: Objects
    where: tuple[Float[Array, "D 2"], ...]


def generative(networks: Networks, frames: Frames, objects: int) -> Callable[[sy.State], Scene]:
    """p(x, z_what, z_where): the target."""

    def model(s: sy.State) -> Scene:
        what = s.sample("what", dist.Normal(0.0, 1.0).expand([objects, WHAT]).to_event(2))
        images = jax.vmap(networks.decoder)(what)
        before, scale, where = jnp.zeros((objects, 2)), 1.0, []
        for t, frame in enumerate(frames):
            z = s.sample(f"where {t}", dist.Normal(before, scale).to_event(2))
            s.observe(f"frame {t}", Shown(images, z, frame.shape[-1]), frame)
            before, scale = z, STEP
            where.append(z)
        return Scene(images, tuple(where))

    return model


def fits(
    frame: Float[Array, "canvas canvas"], image: Float[Array, "patch patch"], before: Float[Array, "2"] | None
) -> Float[Array, "places places"]:
    """Return how well an object fits at each place: the correlation.

    Where it is known what the object looks like and where it was, bright pixels that it would not explain count
    against a place, and so does a place that is far away.
    """
    correlation = correlate(frame, image)
    if before is None:
        return correlation
    contrast = (image**2).sum() / jnp.maximum(image.sum(), 1e-6)
    line = jnp.linspace(-1.0, 1.0, len(correlation))
    across, down = (-0.5 * ((line - x) / REACH) ** 2 for x in before)
    near = jnp.logaddexp(across[None] + down[:, None], -ELSEWHERE)
    return correlation - UNEXPLAINED * contrast * energy(frame) + near


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneByOne:
    """Positions of the objects of a frame, one after the other: each is found in what those before it leave.

    The frame is compared with an image of the object; what was found is subtracted. Unrolled, a draw and its density
    share what they compute; as a loop they are quickly compiled.
    """

    encoder: Any
    frame: Float[Array, "canvas canvas"]
    images: Objects
    before: Float[Array, "D 2"] | None = None
    unroll: bool = field(default=True, metadata={"static": True})

    def sample(self, key: PRNGKeyArray) -> Float[Array, "D 2"]:
        noise = jax.vmap(lambda k: jax.random.normal(k, (2,)))(jax.random.split(key, len(self.images)))
        return self._each(lambda mean, scale, e: mean + scale * e, noise)[0]

    def log_prob(self, value: Float[Array, "D 2"]) -> Float[Array, ""]:
        z, mean, scale = self._each(lambda mean, scale, z: z, value)
        return dist.Normal(mean, scale).log_prob(z).sum()

    def _each(self, choose: Callable[..., Any], given: Float[Array, "D 2"]) -> tuple[Any, Any, Any]:
        """Return the positions, which `choose` makes of moments and of what is given, and the moments."""

        def find(left: Any, of: Any) -> Any:
            image, before, x = of
            mean, scale = self.encoder(jax.lax.stop_gradient(fits(left, image, before)))
            z = choose(mean, scale, x)
            return left - place(image, jax.lax.stop_gradient(z), left.shape[-1]), (z, mean, scale)

        xs = self.images, self.before, given
        if not self.unroll:
            return jax.lax.scan(find, self.frame, xs)[1]
        left, found = self.frame, []
        for d in range(len(self.images)):
            left, at = find(left, jax.tree.map(lambda x: x[d], xs))  # noqa: B023
            found.append(at)
        return jax.tree.map(lambda *each: jnp.stack(each), *found)


def initial(networks: Networks, frames: Frames, objects: int) -> Callable[[sy.State], None]:
    """q(z_where | x) q(z_what | x, z_where): the first proposal, which knows only the average shape."""
    average = jnp.broadcast_to(jnp.asarray(mean_image()), (objects, *mean_image().shape))

    def proposal(s: sy.State) -> None:
        where = [
            s.sample(f"where {t}", OneByOne(networks.where, frame, average, unroll=len(frames) <= LONG))
            for t, frame in enumerate(frames)
        ]
        s.sample("what", _features(networks, frames, where))

    return proposal


def update_what(networks: Networks, frames: Frames) -> Callable[[sy.State, Scene], None]:
    """q(z_what | x, z_where)."""

    def kernel(s: sy.State, scene: Scene) -> None:
        s.sample("what", _features(networks, frames, scene.where))

    return kernel


def update_where(networks: Networks, frames: Frames, t: int) -> Callable[[sy.State, Scene], None]:
    """q(z_where,t | x_t, z_what, z_where,t-1); of the first frame, the one after it."""
    neighbour = min(abs(t - 1), len(frames) - 1)

    def kernel(s: sy.State, scene: Scene) -> None:
        images, before = jax.lax.stop_gradient(scene.objects), scene.where[neighbour]
        s.sample(f"where {t}", OneByOne(networks.where, frames[t], images, before, unroll=len(frames) <= LONG))

    return kernel


def kernels(networks: Networks, frames: Frames) -> list[Callable[[sy.State, Scene], None]]:
    """Return the blocks of a sweep: the features, and then the positions in each frame."""
    return [update_what(networks, frames), *(update_where(networks, frames, t) for t in range(len(frames)))]


def sampler(networks: Networks, frames: Frames, objects: int, sweeps: int) -> Any:
    """Return the amortized population Gibbs sampler; with no sweep it is reweighted wake-sleep."""
    target, proposal = generative(networks, frames, objects), initial(networks, frames, objects)
    return sy.algorithms.apg(target, proposal, kernels(networks, frames), sweeps)


def _features(networks: Networks, frames: Frames, where: Sequence[Float[Array, "D 2"]]) -> dist.Distribution:
    """Return q(z_what | x, z_where), from the places of the objects in all frames."""
    positions = jnp.stack(list(where), axis=1)
    crops = jax.vmap(lambda zs: jax.vmap(crop)(frames, zs))(positions)
    mean, scale = jax.vmap(networks.what)(crops)
    return dist.Normal(mean, scale).to_event(2)
