"""A training step of amortized population Gibbs next to coix's, in the sizes of its example for Moving MNIST.

Two objects on 64 x 64 pixels, ten frames, a batch of five videos, ten particles, five sweeps. The networks and the
arithmetic of the programs are the same in both; the objects are the simulated shapes.
"""

from typing import Any

import coix
import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax

import steelyard as sy
from benchmarks.measure import Row, compare, gradient_step
from steelyard.experiments.tracking.model import STEP, OneByOne, sampler
from steelyard.experiments.tracking.networks import WHAT, Networks
from steelyard.experiments.tracking.pixels import Shown
from steelyard.experiments.tracking.rendering import crop
from steelyard.experiments.tracking.shapes import mean_image
from steelyard.experiments.tracking.videos import simulate

OBJECTS, LENGTH, CANVAS, BATCH, PARTICLES, SWEEPS = 2, 10, 64, 5, 10, 5


class Found(dist.Distribution):
    """Positions of the objects of a frame, of all particles, as a distribution of NumPyro."""

    support = dist.constraints.real_matrix

    def __init__(self, encoder: Any, frame: Any, images: Any) -> None:
        self.of = lambda images: OneByOne(encoder, frame, images)
        self.images = images
        super().__init__((len(images),), (OBJECTS, 2))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        keys = jax.random.split(key, len(self.images))
        return jax.vmap(lambda images, key: self.of(images).sample(key))(self.images, keys)

    def log_prob(self, value: Any) -> Any:
        return jax.vmap(lambda images, z: self.of(images).log_prob(z))(self.images, value)


def by_steelyard(networks: Networks, frames: Any, key: Any) -> Any:
    """Return the loss of one video."""
    return sy.evaluate(sampler(networks, frames, OBJECTS, SWEEPS), key, particles=PARTICLES).loss


def by_coix(networks: Networks, frames: Any, key: Any) -> Any:
    """Return the loss of one video; a program is one of all particles."""
    average = jnp.broadcast_to(jnp.asarray(mean_image()), (PARTICLES, OBJECTS, *mean_image().shape))

    def for_all_particles(f: Any) -> Any:
        return numpyro.plate("particles", PARTICLES, dim=-1)(f)

    def target(*_: Any) -> Any:
        what = numpyro.sample("what", dist.Normal(0.0, 1.0).expand([OBJECTS, WHAT]).to_event(2))
        images = jax.vmap(jax.vmap(networks.decoder))(what)
        before, scale, scene = jnp.zeros((OBJECTS, 2)), 1.0, {"images": images}
        for t, frame in enumerate(frames):
            z = numpyro.sample(f"where {t}", dist.Normal(before, scale).to_event(2))
            seen = jax.vmap(lambda i, z: Shown(i, z, CANVAS).log_prob(frame))(images, z)  # noqa: B023
            numpyro.factor(f"frame {t}", seen)
            before, scale, scene[f"where {t}"] = z, STEP, z
        return (scene,)

    def update_what(scene: Any) -> Any:
        def moments(where: Any) -> Any:
            crops = jax.vmap(lambda zs: jax.vmap(crop)(frames, zs))(where.swapaxes(0, 1))
            return jax.vmap(networks.what)(crops)

        where = jnp.stack([scene[f"where {t}"] for t in range(LENGTH)], axis=1)
        numpyro.sample("what", dist.Normal(*jax.vmap(moments)(where)).to_event(2))
        return (scene,)

    def update_where(t: int) -> Any:
        def kernel(*scene: Any) -> Any:
            scene = scene[0] if scene else {"images": average}
            images = jax.lax.stop_gradient(scene["images"])
            z = numpyro.sample(f"where {t}", Found(networks.where, frames[t], images))
            return ({**scene, f"where {t}": z},)

        return for_all_particles(kernel)

    kernels = [*(update_where(t) for t in range(LENGTH)), for_all_particles(update_what)]
    q = coix.algo.apgs(for_all_particles(target), kernels, num_sweeps=SWEEPS)
    return coix.traced_evaluate(q, seed=key)()[2]["loss"]


def run() -> list[Row]:
    """Compare a step of each on a batch of videos."""
    parameters, static = eqx.partition(Networks(jax.random.key(0), CANVAS), eqx.is_inexact_array)
    optimizer = optax.adam(1e-4)

    def step(loss: Any) -> Any:
        def batch(networks: Networks, frames: Any, key: Any) -> Any:
            return jax.vmap(lambda x, k: loss(networks, x, k))(frames, jax.random.split(key, BATCH)).mean()

        return gradient_step(batch, static, optimizer)

    frames = simulate(jax.random.key(1), BATCH, OBJECTS, LENGTH, CANVAS).frames
    contenders = {"steelyard": step(by_steelyard), "coix": step(by_coix)}
    args = parameters, optimizer.init(parameters), frames, jax.random.key(2)
    return [compare(f"APG training step, T={LENGTH}, {SWEEPS} sweeps", contenders, args, "coix", compilations=1)]
