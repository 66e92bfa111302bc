"""Placing a patch on a canvas and cutting it out again, by bilinear interpolation; and where a patch might be.

Placing is separable: two small matrices of interpolation weights. Positions are in [-1, 1]^2, where -1 and 1 put the
patch at the edges of the canvas.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from steelyard.experiments.tracking.shapes import PATCH

# How many pixels a patch covers in each direction, where it is not at a whole pixel.
WINDOW = PATCH + 1


def weights(position: Float[Array, ""], canvas: int) -> Float[Array, "canvas patch"]:
    """Return how much of each pixel of a patch each pixel of the canvas gets, in one direction."""
    offset = (position + 1) / 2 * (canvas - PATCH)
    distance = jnp.arange(canvas)[:, None] - jnp.arange(PATCH)[None] - offset
    return jnp.maximum(0.0, 1 - jnp.abs(distance))


def place(
    patch: Float[Array, "patch patch"], position: Float[Array, "2"], canvas: int
) -> Float[Array, "canvas canvas"]:
    """Return the canvas with a patch at a position, (x, y); what is beyond the edges is lost."""
    across, down = weights(position[0], canvas), weights(position[1], canvas)
    return down @ patch @ across.T


def crop(frame: Float[Array, "canvas canvas"], position: Float[Array, "2"]) -> Float[Array, "patch patch"]:
    """Return what is at a position."""
    whole, (across, down) = split(position, frame.shape[-1])
    seen = window(jnp.pad(frame, WINDOW), whole)
    seen = (1 - across) * seen[:, :-1] + across * seen[:, 1:]
    return (1 - down) * seen[:-1] + down * seen[1:]


def split(position: Float[Array, "*d 2"], canvas: int) -> tuple[Int[Array, "*d 2"], Float[Array, "*d 2"]]:
    """Return a position in whole pixels, and the fractions that are left; beyond the edges it is just beyond them."""
    offset = jnp.clip((position + 1) / 2 * (canvas - PATCH), -WINDOW, canvas)
    whole = jnp.floor(jax.lax.stop_gradient(offset))
    return whole.astype(int), offset - whole


def shifted(patch: Float[Array, "patch patch"], fraction: Float[Array, "2"]) -> Float[Array, "window window"]:
    """Return the pixels that a patch covers when it is moved by fractions of a pixel."""
    across, down = fraction
    wide = (1 - across) * jnp.pad(patch, ((0, 0), (0, 1))) + across * jnp.pad(patch, ((0, 0), (1, 0)))
    return (1 - down) * jnp.pad(wide, ((0, 1), (0, 0))) + down * jnp.pad(wide, ((1, 0), (0, 0)))


def window(padded: Float[Array, "n n"], whole: Int[Array, "2"]) -> Float[Array, "window window"]:
    """Return what a patch at a position in whole pixels covers of an image that has a margin of a window's width."""
    return jax.lax.dynamic_slice(padded, (whole[1] + WINDOW, whole[0] + WINDOW), (WINDOW, WINDOW))


@jax.custom_vjp
def overlap(image: Float[Array, "window window"], distance: Int[Array, "2"]) -> Float[Array, "window window"]:
    """Return what a window shows of an image of its size that is at a distance of so many whole pixels from it.

    Its gradient is the same, seen from the other side: a slice, where JAX would scatter.
    """
    return window(jnp.pad(image, WINDOW), distance)


def _overlap(image: Float[Array, "window window"], distance: Int[Array, "2"]) -> tuple[Array, Array]:
    return overlap(image, distance), distance


overlap.defvjp(_overlap, lambda distance, g: (overlap(g, -distance), None))


def correlate(
    frame: Float[Array, "canvas canvas"], patch: Float[Array, "patch patch"]
) -> Float[Array, "places places"]:
    """Return how well a patch fits at each place where it is inside of the frame, by Fourier transforms."""
    canvas = frame.shape[-1]
    places = canvas - PATCH + 1
    shape = canvas, canvas
    product = jnp.fft.rfft2(frame, shape) * jnp.conj(jnp.fft.rfft2(patch, shape))
    return jnp.fft.irfft2(product, shape)[:places, :places]


def energy(frame: Float[Array, "canvas canvas"]) -> Float[Array, "places places"]:
    """Return the sum of squares under a patch, at each place where it is inside of the frame."""
    canvas = frame.shape[-1]
    offset = jnp.arange(canvas)[None] - jnp.arange(canvas - PATCH + 1)[:, None]
    under = ((offset >= 0) & (offset < PATCH)).astype(frame.dtype)
    return under @ frame**2 @ under.T
