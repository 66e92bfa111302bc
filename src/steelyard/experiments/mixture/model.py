"""Program 1 of the paper, the proposal of its section 3.2, and the exact answers to compare with."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

import steelyard as sy

CLUSTERS = 5
MEANS = jnp.array([-2.5, -1.0, 0.3, 1.2, 2.8])
SCALES = jnp.array([0.5, 0.3, 0.6, 0.25, 0.4])
IMAGE = jnp.array([0.6, 1.1, -0.4])


def decode(v: Float[Array, ""]) -> Float[Array, "3"]:
    """The generator network: an image of three pixels from a one-dimensional embedding."""
    return jnp.tanh(jnp.array([0.9, 0.5, -0.7]) * v + jnp.array([0.1, 0.6, -0.2])) * jnp.array([1.5, 1.8, 1.2])


def model(s: sy.State, x: Float[Array, "3"]) -> tuple[Any, Any, Any]:
    """p(x, v, z): a cluster, an embedding, and the image that was seen."""
    z = s.sample("z", dist.Categorical(probs=jnp.full(CLUSTERS, 0.2)))
    v = s.sample("v", dist.Normal(MEANS[z], SCALES[z]))
    s.observe("x", dist.Normal(decode(v), 1.0), x)
    return x, v, z


def guide(s: sy.State, x: Float[Array, "3"]) -> None:
    """q(u, z | x): the auxiliary u is superfluous for the model, and v is missing."""
    u = s.sample("u", dist.Normal(jnp.sum(x * jnp.array([0.5, 0.4, -0.3])), 0.7))
    s.sample("z", dist.Categorical(logits=-jnp.abs(u - MEANS)))


def update(s: sy.State, value: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """q(v | x, z): an approximate Gibbs update of the embedding, by one step towards the image."""
    x, _, z = value
    prior, scale = MEANS[z], SCALES[z]
    residual = jnp.sum((x - decode(prior)) * jnp.array([0.9, 0.5, -0.7]))
    v = s.sample("v", dist.Normal(prior + 0.4 * scale**2 * residual, 0.9 * scale))
    return x, v, z


def sampler() -> Any:
    """Propose from the guide, resample, and update the embedding."""
    q = sy.propose(model, guide)
    return sy.propose(sy.extend(model, sy.prev(update)), sy.move(update, sy.resample(q)))


class Exact(NamedTuple):
    """What the sampler estimates, by quadrature."""

    log_z: float
    cluster: np.ndarray
    embedding: float
    grid: np.ndarray
    density: np.ndarray


def exact(x: Float[Array, "3"]) -> Exact:
    """Integrate p(x, v, z) over a fine grid of v for every z."""
    grid, step = np.linspace(-8.0, 8.0, 40_001, retstep=True)
    pixels = np.tanh(np.outer(grid, [0.9, 0.5, -0.7]) + np.array([0.1, 0.6, -0.2])) * np.array([1.5, 1.8, 1.2])
    likelihood = np.exp(-0.5 * ((np.asarray(x, float) - pixels) ** 2).sum(axis=1)) / (2 * np.pi) ** 1.5
    means, scales = np.asarray(MEANS, float)[:, None], np.asarray(SCALES, float)[:, None]
    prior = np.exp(-0.5 * ((grid - means) / scales) ** 2) / (scales * np.sqrt(2 * np.pi)) / CLUSTERS
    joint = prior * likelihood
    z = joint.sum() * step
    density = joint.sum(axis=0) / z
    return Exact(float(np.log(z)), joint.sum(axis=1) * step / z, float((grid * density).sum() * step), grid, density)
