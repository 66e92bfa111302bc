"""One training step of a variational autoencoder with a discrete latent, and 10,000 small steps.

The model is the paper's Program 1 with networks: a cluster z, an embedding v, an image x. The guide proposes v from the
image, and z from v. Contenders make the same gradient step: the same networks, minibatch, particles and optimiser.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import TraceGraph_ELBO

import steelyard as sy
from benchmarks.measure import Row, compare

BATCH, PARTICLES, PIXELS, HIDDEN, EMBEDDING, CLUSTERS = 32, 10, 64, 64, 4, 5
OPTIMIZER = optax.adam(1e-3)


def dense(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
    return {"w": jax.random.normal(key, (inputs, outputs)) / inputs**0.5, "b": jnp.zeros(outputs)}


def apply(layer: dict[str, Any], x: Any) -> Any:
    return x @ layer["w"] + layer["b"]


def initialize(key: Any) -> dict[str, Any]:
    sizes = {
        "prior": (CLUSTERS, 2 * EMBEDDING),
        "decode1": (EMBEDDING, HIDDEN),
        "decode2": (HIDDEN, PIXELS),
        "encode1": (PIXELS, HIDDEN),
        "encode2": (HIDDEN, 2 * EMBEDDING),
        "cluster1": (EMBEDDING, HIDDEN),
        "cluster2": (HIDDEN, CLUSTERS),
    }
    keys = jax.random.split(key, len(sizes))
    return {name: dense(k, *size) for k, (name, size) in zip(keys, sizes.items(), strict=True)}


def location_and_scale(x: Any) -> tuple[Any, Any]:
    location, raw = jnp.split(x, 2, axis=-1)
    return location, jax.nn.softplus(raw) + 1e-3


def prior(net: Any, z: Any) -> tuple[Any, Any]:
    return location_and_scale(apply(net["prior"], jax.nn.one_hot(z, CLUSTERS)))


def decode(net: Any, v: Any) -> Any:
    return apply(net["decode2"], jax.nn.relu(apply(net["decode1"], v)))


def encode(net: Any, x: Any) -> tuple[Any, Any]:
    return location_and_scale(apply(net["encode2"], jax.nn.relu(apply(net["encode1"], x))))


def classify(net: Any, v: Any) -> Any:
    return apply(net["cluster2"], jax.nn.relu(apply(net["cluster1"], v)))


def program(method: Any) -> Any:
    """The inference program of one image, for steelyard."""

    def build(net: Any, x: Any) -> Any:
        def model(s: sy.State) -> None:
            z = s.sample("z", dist.Categorical(logits=jnp.zeros(CLUSTERS)))
            v = s.sample("v", dist.Normal(*prior(net, z)))
            s.observe("x", dist.Normal(decode(net, v), 1.0), x)

        def guide(s: sy.State) -> None:
            v = s.sample("v", dist.Normal(*encode(net, x)))
            s.sample("z", dist.Categorical(logits=classify(net, v)))

        return method(model, guide)

    return build


def steelyard_loss(method: Any) -> Any:
    def loss(net: Any, key: Any, xs: Any) -> Any:
        def one(key: Any, x: Any) -> Any:
            return sy.evaluate(program(method)(net, x), key, particles=PARTICLES).loss

        return jax.vmap(one)(jax.random.split(key, BATCH), xs).mean()

    return loss


def _normal(x: Any, location: Any, scale: Any) -> Any:
    return jnp.sum(-0.5 * ((x - location) / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def _draw(net: Any, key: Any, xs: Any) -> Any:
    """Draw (batch, particles) values of v and z from the guide."""
    k1, k2 = jax.random.split(key)
    location, scale = encode(net, xs)
    noise = jax.random.normal(k1, (BATCH, PARTICLES, EMBEDDING))
    v = location[:, None] + scale[:, None] * noise
    z = jax.random.categorical(k2, jax.lax.stop_gradient(classify(net, v)))
    return v, z


def _densities(net: Any, xs: Any, v: Any, z: Any) -> tuple[Any, Any, Any]:
    location, scale = encode(net, xs)
    log_v = _normal(v, location[:, None], scale[:, None])
    log_z = jnp.take_along_axis(jax.nn.log_softmax(classify(net, v)), z[..., None], axis=-1)[..., 0]
    log_p = _normal(xs[:, None], decode(net, v), 1.0) + _normal(v, *prior(net, z)) - jnp.log(CLUSTERS)
    return log_p, log_v, log_z


def svi_by_hand(net: Any, key: Any, xs: Any) -> Any:
    v, z = _draw(net, key, xs)
    log_p, log_v, log_z = _densities(net, xs, v, z)
    log_w = log_p - log_v - log_z
    others = (log_w.sum(1, keepdims=True) - log_w) / (PARTICLES - 1)
    score = jax.lax.stop_gradient(log_w - others) * log_z
    return -jnp.mean(log_w) - jnp.mean(score - jax.lax.stop_gradient(score))


def rws_by_hand(net: Any, key: Any, xs: Any) -> Any:
    v, z = jax.lax.stop_gradient(_draw(net, key, xs))
    log_p, log_v, log_z = _densities(net, xs, v, z)
    weights = jax.nn.softmax(jax.lax.stop_gradient(log_p - log_v - log_z))
    return -jnp.mean(jnp.sum(weights * (log_p + log_v + log_z), axis=1))


def numpyro_model(net: Any, xs: Any) -> None:
    with numpyro.plate("images", BATCH):
        z = numpyro.sample("z", dist.Categorical(logits=jnp.zeros(CLUSTERS)))
        v = numpyro.sample("v", dist.Normal(*prior(net, z)).to_event(1))
        numpyro.sample("x", dist.Normal(decode(net, v), 1.0).to_event(1), obs=xs)


def numpyro_guide(net: Any, xs: Any) -> None:
    with numpyro.plate("images", BATCH):
        v = numpyro.sample("v", dist.Normal(*encode(net, xs)).to_event(1))
        numpyro.sample("z", dist.Categorical(logits=classify(net, v)))


def numpyro_loss(net: Any, key: Any, xs: Any) -> Any:
    elbo = TraceGraph_ELBO(num_particles=PARTICLES)
    return elbo.loss(key, {}, lambda x: numpyro_model(net, x), lambda x: numpyro_guide(net, x), xs) / BATCH


def step(loss: Any) -> Any:
    """A gradient step on a loss."""

    def update(net: Any, state: Any, key: Any, xs: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(net, key, xs)
        updates, state = OPTIMIZER.update(gradients, state, net)
        return optax.apply_updates(net, updates), state, value

    return update


def run() -> list[Row]:
    """Compare one step by svi and by rws with hand-written JAX, and by svi with NumPyro."""
    net = initialize(jax.random.key(0))
    xs = jax.random.normal(jax.random.key(1), (BATCH, PIXELS))
    args = (net, OPTIMIZER.init(net), jax.random.key(2), xs)
    svi = {
        "steelyard": step(steelyard_loss(sy.algorithms.svi)),
        "NumPyro": step(numpyro_loss),
        "hand-written JAX": step(svi_by_hand),
    }
    rws = {"steelyard": step(steelyard_loss(sy.algorithms.rws)), "hand-written JAX": step(rws_by_hand)}
    return [
        compare("VAE training step, svi", svi, args, "hand-written JAX"),
        compare("VAE training step, rws", rws, args, "hand-written JAX"),
    ]
