"""One training step on the ring of the paper's first experiment: K = 8 densities, 36 particles.

Nested variational inference by the reverse KL divergence, with resampling and a learned schedule (NVIR*).
"""

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import coix
import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from jax.lax import stop_gradient

import steelyard as sy
from benchmarks.measure import Row, compare, compare_training, gradient_step, in_a_loop
from steelyard.experiments.annealing.model import CENTERS, RADIUS, VARIANCE, Kernel, Sampler, annealed

DENSITIES, PARTICLES, LOOP, STEPS = 8, 36, 100, 5_000
OPTIMIZER = optax.adam(1e-3)


def program(sampler: Sampler, unroll: int = 1) -> Any:
    over = (sampler.schedule(learned=True), (sampler.forward, sampler.reverse))
    return sy.algorithms.nvi(annealed, lambda kernels: kernels, over, unroll=unroll)


def steelyard_loss(unroll: int) -> Any:
    return lambda sampler, key: sy.evaluate(program(sampler, unroll), key, particles=PARTICLES).loss


def _log_initial(x: Any) -> Any:
    return jnp.sum(-0.5 * (x / 5.0) ** 2 - jnp.log(5.0) - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def _log_annealed(x: Any, beta: Any) -> Any:
    squares = jnp.sum(x**2, axis=-1, keepdims=True) - 2 * x @ CENTERS.T + RADIUS**2
    ring = jax.nn.logsumexp(-0.5 * squares / VARIANCE, axis=-1) - jnp.log(2 * jnp.pi * VARIANCE)
    return (1 - beta) * _log_initial(x) + beta * ring


def _moments(kernel: Kernel, x: Any) -> tuple[Any, Any]:
    def layer(linear: Any, x: Any) -> Any:
        return x @ linear.weight.T + linear.bias

    offset, spread = jnp.split(layer(kernel.moments, jax.nn.relu(layer(kernel.hidden, x))), 2, axis=-1)
    return x + offset, jnp.sqrt(jax.nn.softplus(spread))


def _log_normal(x: Any, mean: Any, scale: Any) -> Any:
    return jnp.sum(-0.5 * ((x - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def _level(carry: Any, level: Any) -> Any:
    """Resample, move, weigh; the gradient of the reverse KL divergence of one level."""
    x, log_w, key = carry
    before, beta, forward, reverse = level
    key, k1, k2 = jax.random.split(key, 3)
    cdf = jnp.cumsum(jax.nn.softmax(log_w))
    positions = (jnp.arange(PARTICLES) + jax.random.uniform(k1)) / PARTICLES
    x = x[jnp.clip(jnp.searchsorted(cdf, positions), 0, PARTICLES - 1)]
    log_w = jnp.full(PARTICLES, jax.nn.logsumexp(log_w) - jnp.log(PARTICLES))
    mean, scale = _moments(forward, x)
    new = mean + scale * jax.random.normal(k2, x.shape)
    log_before = _log_annealed(x, before)
    log_q = _log_normal(new, stop_gradient(mean), stop_gradient(scale))
    log_r = _log_normal(x, *_moments(reverse, new))
    log_v = _log_annealed(new, beta) + log_r - log_before - log_q
    w, wv = (stop_gradient(jax.nn.softmax(u)) for u in (log_w, log_w + log_v))
    average = stop_gradient(jnp.sum(w * -log_v))
    surrogate = (
        jnp.sum(w * -log_v)
        + jnp.sum(wv * _log_annealed(stop_gradient(new), beta))
        - jnp.sum(w * log_before)
        + jnp.sum(stop_gradient(w * (-log_v - average)) * log_before)
    )
    log_w_new = stop_gradient(log_w + log_v)
    divergence = average + jax.nn.logsumexp(log_w_new) - jax.nn.logsumexp(log_w)
    return (stop_gradient(new), log_w_new, key), divergence + surrogate - stop_gradient(surrogate)


def by_hand(unroll: int) -> Any:
    def loss(sampler: Sampler, key: Any) -> Any:
        betas = sampler.schedule(learned=True)
        key, first = jax.random.split(key)
        carry = 5.0 * jax.random.normal(first, (PARTICLES, 2)), jnp.zeros(PARTICLES), key
        levels = (betas[:-1], betas[1:], sampler.forward, sampler.reverse)
        return jnp.sum(jax.lax.scan(_level, carry, levels, unroll=unroll)[1])

    return loss


def _log_annealed_in_example(x: Any, beta: Any) -> Any:
    ring = jax.nn.logsumexp(dist.Normal(CENTERS, VARIANCE**0.5).log_prob(x[:, None, :]).sum(-1), axis=-1)
    return (1 - beta) * dist.Normal(0.0, 5.0).log_prob(x).sum(-1) + beta * ring


def _moments_in_example(kernel: Kernel, x: Any) -> tuple[Any, Any]:
    hidden = jax.nn.relu(x @ kernel.hidden.weight.T + kernel.hidden.bias)
    heads = zip(jnp.split(kernel.moments.weight, 2), jnp.split(kernel.moments.bias, 2), strict=True)
    offset, spread = (hidden @ weight.T + bias for weight, bias in heads)
    return x + offset, jnp.sqrt(jax.nn.softplus(spread))


def by_coix(
    *, rolled: bool, densities: int = DENSITIES, particles: int = PARTICLES, learned: bool = True, example: bool = False
) -> Any:
    """The same in the earlier library, which has no rule for the parameters of the density that came in.

    Its own example of this task has a layer for each moment, and eight Gaussian densities in place of a product with
    all centers: that is the other contender.
    """
    log_annealed = _log_annealed_in_example if example else _log_annealed
    moments = _moments_in_example if example else _moments

    def loss(sampler: Sampler, key: Any) -> Any:
        betas, levels = sampler.schedule(learned=learned), range(densities - 1)

        def for_all_particles(f: Any) -> Any:
            return numpyro.plate("particles", particles, dim=-1)(f)

        def target(k: Any) -> Any:
            def p() -> Any:
                x = numpyro.sample("x", dist.Normal(0.0, 5.0).expand([2]).to_event(1).mask(False))
                numpyro.factor("heat", log_annealed(x, betas[k]))
                return ({"x": x},)

            return for_all_particles(p)

        def kernels(stack: Kernel) -> Any:
            def kernel(k: Any) -> Any:
                def f(inputs: Any) -> Any:
                    layers = jax.tree.map(lambda leaf: leaf[k], stack)
                    return numpyro.sample("x", dist.Normal(*moments(layers, inputs["x"])).to_event(1))

                return for_all_particles(f)

            return kernel

        programs = target, kernels(sampler.forward), kernels(sampler.reverse)
        if not rolled:
            targets, forward, reverse = programs
            programs = (
                [targets(k) for k in range(densities)],
                [forward(k) for k in levels],
                [reverse(k) for k in levels],
            )
        q = coix.algo.nvi_rkl(*programs, num_targets=densities)
        return coix.traced_evaluate(q, seed=key)()[2]["loss"]

    return loss


def run() -> list[Row]:
    """Compare with hand-written JAX and with coix, rolled and unrolled; and a long path with a short one.

    A call from Python costs JAX a good part of such a step, whoever wrote it: a step that only adds one shows how much.
    """
    rows = []
    for name, unroll in (("rolled", 1), ("unrolled", DENSITIES - 1)):
        losses = {
            "steelyard": steelyard_loss(unroll),
            "coix, the same networks": by_coix(rolled=unroll == 1),
            "coix's example": by_coix(rolled=unroll == 1, example=True),
            "hand-written JAX": by_hand(unroll),
        }
        parameters, static = eqx.partition(Sampler.start(jax.random.key(0), DENSITIES), eqx.is_inexact_array)
        args = (parameters, OPTIMIZER.init(parameters), jax.random.key(1))
        task = f"ring, K={DENSITIES}, {PARTICLES} particles, NVIR*, {name}"
        steps = {n: gradient_step(f, static, OPTIMIZER) for n, f in losses.items()}
        loops = {n: in_a_loop(step, LOOP) for n, step in steps.items()}
        calls = {**steps, "JAX's call alone": lambda *args: jax.tree.map(lambda leaf: leaf + 1, args[:2])}
        rows += [
            compare(f"{task}: {LOOP} training steps in a loop", loops, args, "hand-written JAX"),
            compare(f"{task}: one step called from Python", calls, args, "hand-written JAX"),
        ]
    return [*rows, training(), lengths()]


def training() -> Row:
    """Compare steps as each library makes them: in compiled chunks, or in a loop of Python."""
    start = Sampler.start(jax.random.key(0), DENSITIES)
    parameters, static = eqx.partition(start, eqx.is_inexact_array)
    coix_loss = by_coix(rolled=True)

    def by_sy_train(key: Any, steps: int) -> Any:
        return sy.train(
            program, start, optimizer=OPTIMIZER, steps=steps, key=key, particles=PARTICLES, progress=False
        ).models

    def by_coix_train(key: Any, steps: int) -> Any:
        def loss(parameters: Any, key: Any) -> Any:
            value = coix_loss(eqx.combine(parameters, static), key)
            return value, {"loss": value}

        with redirect_stdout(StringIO()):
            return coix.util.train(loss, parameters, OPTIMIZER, steps, seed=key)

    contenders = {"sy.train": by_sy_train, "coix.util.train": by_coix_train}
    return compare_training("ring, training, rolled", contenders, "coix.util.train", steps=STEPS)


def lengths() -> Row:
    """Compare a path of 512 densities with one of 8: the loop is compiled once, whatever its length."""

    def contender(densities: int) -> Any:
        parameters, static = eqx.partition(Sampler.start(jax.random.key(0), densities), eqx.is_inexact_array)
        state = OPTIMIZER.init(parameters)
        return lambda key: gradient_step(steelyard_loss(1), static, OPTIMIZER)(parameters, state, key)

    contenders = {"K=512": contender(512), "K=8": contender(8)}
    return compare("ring, rolled, lengths of the path", contenders, (jax.random.key(1),), "K=8")
