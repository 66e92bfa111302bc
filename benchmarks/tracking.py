"""A training step of amortized population Gibbs on videos, next to the same step written by hand.

By hand means with the same shortcuts: decoded objects are kept from update to update, an update of one position costs
one frame, gradients reach parameters only, and with several sweeps each is computed again on the way back.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import steelyard as sy
from benchmarks.measure import Row, compare, gradient_step
from steelyard.experiments.tracking.model import STEP, fits, sampler
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.pixels import Shown
from steelyard.experiments.tracking.rendering import crop, place
from steelyard.experiments.tracking.shapes import mean_image
from steelyard.experiments.tracking.videos import simulate

OBJECTS, LENGTH, PARTICLES, BATCH = 3, 10, 20, 5
stop = jax.lax.stop_gradient


def by_hand(networks: Networks, frames: Any, key: Any, particles: int, sweeps: int) -> Any:
    """Return the loss of one video."""
    length, canvas = frames.shape[0], frames.shape[-1]
    average = jnp.broadcast_to(jnp.asarray(mean_image()), (OBJECTS, *mean_image().shape))
    decode = jax.vmap(jax.vmap(networks.decoder))
    k1, k2, k3 = jax.random.split(key, 3)

    def likelihood(images: Any, z: Any, frame: Any) -> Any:
        return jax.vmap(lambda i, z: Shown(i, z, canvas).log_prob(frame))(images, z)

    def transition(where: Any, t: int) -> Any:
        before, scale = (where[:, t - 1], STEP) if t else (0.0, 1.0)
        return normal(where[:, t], before, scale).sum(axis=(1, 2))

    def features(where: Any) -> Any:
        def one(where: Any) -> Any:
            crops = jax.vmap(lambda z: jax.vmap(crop)(frames, z))(where.swapaxes(0, 1))
            return jax.vmap(networks.what)(crops)

        return jax.vmap(one)(where)

    first = [
        jax.vmap(lambda k: one_by_one(networks, frames[t], average, drawn(k)))(  # noqa: B023
            jax.random.split(jax.random.fold_in(k1, t), particles)
        )
        for t in range(length)
    ]
    where = jnp.stack([z for z, _ in first], axis=1)
    mean, scale = features(where)
    what = stop(mean + scale * jax.random.normal(k2, mean.shape))
    log_q = sum(q for _, q in first) + normal(what, mean, scale).sum(axis=(1, 2))
    images = decode(what)
    seen = [likelihood(images, where[:, t], frames[t]) for t in range(length)]
    steps = [transition(where, t) for t in range(length)]
    prior = normal(what, 0.0, 1.0).sum(axis=(1, 2))
    log_p = sum(seen) + sum(steps) + prior
    log_w = stop(log_p - log_q)
    loss = (jax.nn.softmax(log_w) * (-log_q - log_p)).sum()

    def sweep(carry: Any, number: Any) -> Any:
        what, where, images, prior, seen, steps, log_w, loss = carry
        for block in range(length + 1):
            own = jax.random.fold_in(jax.random.fold_in(k3, number), block)
            a = systematic(own, log_w)
            what, where, images, prior, seen, steps = jax.tree.map(
                lambda x: x[a],  # noqa: B023
                (what, where, images, prior, seen, steps),
            )
            log_w = jnp.full(particles, jax.nn.logsumexp(log_w) - jnp.log(particles))
            old = sum(seen) + sum(steps) + prior
            if block == 0:
                mean, scale = features(where)
                new = stop(mean + scale * jax.random.normal(jax.random.fold_in(own, 1), mean.shape))
                forward, reverse = (normal(x, mean, scale).sum(axis=(1, 2)) for x in (new, what))
                what, images, prior = new, decode(new), normal(new, 0.0, 1.0).sum(axis=(1, 2))
                seen = [likelihood(images, where[:, t], frames[t]) for t in range(length)]
            else:
                t = block - 1
                find = partial(one_by_one, networks, frames[t])
                held, near = stop(images), where[:, abs(t - 1)]
                keys = jax.random.split(jax.random.fold_in(own, 1), particles)
                z, forward = jax.vmap(lambda i, n, k: find(i, drawn(k), n))(held, near, keys)  # noqa: B023
                reverse = jax.vmap(lambda i, n, z: find(i, given(z), n)[1])(held, near, where[:, t])  # noqa: B023
                where = where.at[:, t].set(z)
                seen = [*seen[:t], likelihood(images, z, frames[t]), *seen[t + 1 :]]
                steps = [transition(where, u) if u in (t, t + 1) else x for u, x in enumerate(steps)]
            log_p = sum(seen) + sum(steps) + prior
            log_w = stop(log_w + log_p - old + reverse - forward)
            loss = loss + (jax.nn.softmax(log_w) * (-forward - log_p)).sum()
        return (what, where, images, prior, seen, steps, log_w, loss), None

    body = jax.checkpoint(sweep, prevent_cse=False) if sweeps > 1 else sweep
    carry, _ = jax.lax.scan(body, (what, where, images, prior, seen, steps, log_w, loss), jnp.arange(sweeps))
    return carry[-1]


def one_by_one(networks: Networks, frame: Any, images: Any, choose: Callable[..., Any], near: Any = None) -> Any:
    """Return positions of the objects of a frame, and their density; `choose` draws or gives each of them."""
    left, places, log_q = frame, [], 0.0
    for d, image in enumerate(images):
        mean, scale = networks.where(stop(fits(left, image, None if near is None else near[d])))
        z = choose(d, mean, scale)
        log_q += normal(z, mean, scale).sum()
        left = left - place(image, z, left.shape[-1])
        places.append(z)
    return jnp.stack(places), log_q


def drawn(key: Any) -> Callable[..., Any]:
    """Return how positions are drawn."""
    return lambda d, mean, scale: stop(mean + scale * jax.random.normal(jax.random.fold_in(key, d), (2,)))


def given(z: Any) -> Callable[..., Any]:
    """Return how positions are taken as they are."""
    return lambda d, mean, scale: z[d]


def normal(x: Any, mean: Any, scale: Any) -> Any:
    """Return the log density of a normal distribution."""
    return -0.5 * ((x - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)


def systematic(key: Any, log_w: Any) -> Any:
    """Return ancestors, in a random rotation."""
    size, (k1, k2) = len(log_w), jax.random.split(key)
    cdf = jnp.cumsum(jax.nn.softmax(log_w))
    a = jnp.searchsorted(cdf / cdf[-1], (jnp.arange(size) + jax.random.uniform(k1)) / size)
    return jnp.roll(jnp.clip(a, 0, size - 1), jax.random.randint(k2, (), 0, size))


def ours(networks: Networks, frames: Any, key: Any, particles: int, sweeps: int) -> Any:
    """Return the loss of one video."""
    return sy.evaluate(sampler(networks, frames, OBJECTS, sweeps), key, particles=particles).loss


def step(loss: Callable[..., Any], sweeps: int) -> tuple[Callable[..., Any], Any]:
    """Return a training step on a batch of videos, and what it begins with."""
    parameters, static = eqx.partition(Networks(jax.random.key(0)), eqx.is_inexact_array)
    optimizer = optax.adam(1e-3)

    def batch(networks: Networks, frames: Any, key: Any) -> Any:
        keys = jax.random.split(key, len(frames))
        return jax.vmap(lambda x, k: loss(networks, x, k, PARTICLES, sweeps))(frames, keys).mean()

    return gradient_step(batch, static, optimizer), (parameters, optimizer.init(parameters))


def run() -> list[Row]:
    """Compare a step with one sweep and with five; and ours with five sweeps next to ours with one."""
    frames = simulate(jax.random.key(1), BATCH, OBJECTS, LENGTH).frames
    rows = []
    for sweeps in (1, 5):
        contenders, start = {}, None
        for name, loss in (("steelyard", ours), ("by hand", by_hand)):
            contenders[name], start = step(loss, sweeps)
        arguments = *(start or ()), frames, jax.random.key(2)
        task = f"APG training step, T={LENGTH}, {sweeps} sweep{'s' * (sweeps > 1)}"
        rows.append(compare(task, contenders, arguments, "by hand", compilations=1))
    one, five = (row.costs["steelyard"] for row in rows)
    return [*rows, Row("APG training step", {"five sweeps": five, "one sweep": one}, "one sweep")]
