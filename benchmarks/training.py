"""One training step of `examples/vae.py`: the paper's Program 1 with networks, by svi and by rws.

Contenders make the same gradient step: the same networks, minibatch, particles and optimiser; in a compiled loop, as
`sy.train` and NumPyro's `SVI.run` do, and one by one.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import TraceGraph_ELBO

import steelyard as sy
from benchmarks.measure import Row, compare, gradient_step, in_a_loop
from examples.vae import CLUSTERS, EMBEDDING, METHODS, Autoencoder, simulate
from steelyard.compiler.randomness import keys_of_rows

BATCH, PARTICLES, STEPS = 50, 10, 100
OPTIMIZER = optax.adam(5e-3)


def steelyard_loss(name: str) -> Any:
    def loss(net: Autoencoder, key: Any, xs: Any) -> Any:
        q = METHODS[name](net.model, net.guide)
        return jax.vmap(lambda k, x: sy.evaluate(q, k, x, particles=PARTICLES).loss)(
            keys_of_rows(key, BATCH), xs
        ).mean()

    return loss


def location_and_scale(output: Any) -> tuple[Any, Any]:
    mean, log_scale = jnp.split(output, 2, axis=-1)
    return 5.0 * mean, jnp.exp(log_scale)


def _normal(x: Any, location: Any, scale: Any) -> Any:
    return jnp.sum(-0.5 * ((x - location) / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def _draw_and_weigh(net: Autoencoder, key: Any, xs: Any, reparameterized: bool) -> tuple[Any, Any, Any, Any]:
    """Return log p(x, v, z), log q(v | x, z), log q(z | x), each for (image, particle)."""
    k1, k2 = jax.random.split(key)
    logits = jax.vmap(net.phi_z)(xs)
    z = jax.random.categorical(k1, jax.lax.stop_gradient(logits)[:, None], shape=(BATCH, PARTICLES))
    one_hot = jax.nn.one_hot(z, CLUSTERS)
    inputs = jnp.concatenate([jnp.broadcast_to(xs[:, None], (BATCH, PARTICLES, xs.shape[1])), one_hot], axis=-1)
    location, scale = location_and_scale(jax.vmap(jax.vmap(net.phi_v))(inputs))
    v = location + scale * jax.random.normal(k2, (BATCH, PARTICLES, EMBEDDING))
    v = v if reparameterized else jax.lax.stop_gradient(v)
    log_z = jnp.take_along_axis(jax.nn.log_softmax(logits), z, axis=-1)
    prior = location_and_scale(jax.vmap(jax.vmap(net.eta_v))(one_hot))
    image = jax.vmap(jax.vmap(net.eta_x))(v)
    log_p = _normal(xs[:, None], image, 1.0) + _normal(v, *prior) - jnp.log(CLUSTERS)
    return log_p, _normal(v, location, scale), log_z, v


def svi_by_hand(net: Autoencoder, key: Any, xs: Any) -> Any:
    log_p, log_v, log_z, _ = _draw_and_weigh(net, key, xs, reparameterized=True)
    log_w = log_p - log_v - log_z
    others = (log_w.sum(1, keepdims=True) - log_w) / (PARTICLES - 1)
    score = jax.lax.stop_gradient(log_w - others) * log_z
    return -jnp.mean(log_w) - jnp.mean(score - jax.lax.stop_gradient(score))


def rws_by_hand(net: Autoencoder, key: Any, xs: Any) -> Any:
    log_p, log_v, log_z, _ = _draw_and_weigh(net, key, xs, reparameterized=False)
    weights = jax.nn.softmax(jax.lax.stop_gradient(log_p - log_v - log_z))
    return -jnp.mean(jnp.sum(weights * (log_p + log_v + log_z), axis=1))


def numpyro_model(net: Autoencoder, xs: Any) -> None:
    with numpyro.plate("images", BATCH):
        z = numpyro.sample("z", dist.Categorical(jnp.full(CLUSTERS, 1 / CLUSTERS)))
        prior = location_and_scale(jax.vmap(net.eta_v)(jax.nn.one_hot(z, CLUSTERS)))
        v = numpyro.sample("v", dist.Normal(*prior).to_event(1))
        numpyro.sample("x", dist.Normal(jax.vmap(net.eta_x)(v), 1.0).to_event(1), obs=xs)


def numpyro_guide(net: Autoencoder, xs: Any) -> None:
    with numpyro.plate("images", BATCH):
        z = numpyro.sample("z", dist.Categorical(logits=jax.vmap(net.phi_z)(xs)))
        inputs = jnp.concatenate([xs, jax.nn.one_hot(z, CLUSTERS)], axis=-1)
        numpyro.sample("v", dist.Normal(*location_and_scale(jax.vmap(net.phi_v)(inputs))).to_event(1))


def numpyro_loss(net: Autoencoder, key: Any, xs: Any) -> Any:
    elbo = TraceGraph_ELBO(num_particles=PARTICLES)
    return elbo.loss(key, {}, lambda x: numpyro_model(net, x), lambda x: numpyro_guide(net, x), xs) / BATCH


def run() -> list[Row]:
    """Compare one step by svi and by rws with hand-written JAX, and by svi with NumPyro."""
    parameters, static = eqx.partition(Autoencoder(jax.random.key(0)), eqx.is_inexact_array)
    args = (parameters, OPTIMIZER.init(parameters), jax.random.key(2), simulate(jax.random.key(1), BATCH)[0])
    svi = {"steelyard": steelyard_loss("svi"), "NumPyro": numpyro_loss, "hand-written JAX": svi_by_hand}
    rws = {"steelyard": steelyard_loss("rws"), "hand-written JAX": rws_by_hand}
    rows: list[Row] = []
    for name, losses in (("svi", svi), ("rws", rws)):
        steps = {n: gradient_step(f, static, OPTIMIZER) for n, f in losses.items()}
        loops = {n: in_a_loop(step, STEPS) for n, step in steps.items()}
        rows += [
            compare(f"VAE, {STEPS} training steps in a loop, {name}", loops, args, "hand-written JAX"),
            compare(f"VAE, one training step called from Python, {name}", steps, args, "hand-written JAX"),
        ]
    return rows
