"""The likelihood of a frame: independent Bernoulli variables, observed as grey values as in autoencoders of images."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from steelyard.experiments.tracking.rendering import WINDOW, overlap, place, shifted, split, window

# Probabilities are at least this, and at most one minus it: a wrong pixel costs 15.9 nats.
LEAST = 1.2e-7

Frame = Float[Array, "canvas canvas"]


def render(objects: Float[Array, "D patch patch"], where: Float[Array, "D 2"], canvas: int) -> Frame:
    """Return a frame with the objects at their positions, grey values clipped to [0, 1]."""
    return jnp.clip(jax.vmap(lambda o, z: place(o, z, canvas))(objects, where).sum(axis=0), 0.0, 1.0)


def log_likelihood(p: Float[Array, "..."] | float, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the log density of each pixel x of probability p."""
    p = jnp.clip(p, LEAST, 1 - LEAST)
    return x * jnp.log(p) + (1 - x) * jnp.log1p(-p)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shown:
    """Pixels of a frame that shows objects at their positions."""

    objects: Float[Array, "D patch patch"]
    where: Float[Array, "D 2"]
    canvas: int = field(metadata={"static": True})

    def sample(self, key: PRNGKeyArray) -> Frame:
        return jax.random.bernoulli(key, render(self.objects, self.where, self.canvas)).astype(float)

    def log_prob(self, value: Frame) -> Float[Array, ""]:
        """Compare pixels with those of an empty frame, in the windows that the objects cover: elsewhere it is empty.

        A pixel in n windows counts 1/n in each.
        """
        whole, fraction = split(self.where, self.canvas)
        objects = jax.vmap(shifted)(self.objects, fraction)
        # Beyond the edges there is nothing to see.
        frame = jnp.pad(value, WINDOW, constant_values=-1.0)

        def gained(start: Int[Array, "2"]) -> Float[Array, ""]:
            distance = jnp.clip(start[None] - whole, -WINDOW, WINDOW)
            p, x = jax.vmap(overlap)(objects, distance).sum(axis=0), window(frame, start)
            place = distance[:, :, None] + jnp.arange(WINDOW)[None, None]
            across, down = jnp.moveaxis(((place >= 0) & (place < WINDOW)).astype(p.dtype), 1, 0)
            gain = jnp.where(x >= 0, log_likelihood(p, x) - log_likelihood(0.0, x), 0.0)
            return (gain / (down.T @ across)).sum()

        return log_likelihood(0.0, value).sum() + jax.vmap(gained)(whole).sum()
