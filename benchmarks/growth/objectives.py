"""Gradients with score-function terms, in which each particle is compared with all others."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.growth.measure import Growth, Job, growth


def model(s: sy.State, logit: Any) -> None:
    s.observe("x", dist.Normal(s.sample("z", dist.Bernoulli(0.3)), 1.0), 1.0)


def guide(s: sy.State, logit: Any) -> None:
    s.sample("z", dist.Bernoulli(logits=logit))


def ours(objective: Any, particles: int) -> Job:
    def loss(logit: Any, key: Any) -> Any:
        return sy.evaluate(sy.propose(model, guide), key, logit, particles=particles, objective=objective).loss

    return jax.grad(loss), (0.2, jax.random.key(0))


# What a baseline makes of the log weights, and of the log of the sum of the other weights of each particle.
Baseline = Callable[[Any, Any], Any]


def mean_of_others(log_w: Any, log_others: Any) -> Any:
    return log_others - jnp.log(log_w.size - 1)


def with_geometric_mean(log_w: Any, log_others: Any) -> Any:
    """The mean of all weights, if each were the geometric mean of the others: the baseline of VIMCO."""
    geometric_mean = (jnp.sum(log_w) - log_w) / (log_w.size - 1)
    return jnp.logaddexp(log_others, geometric_mean) - jnp.log(log_w.size)


def by_hand(baseline: Baseline, particles: int) -> Job:
    """The gradient of the importance-weighted bound, with a baseline for each particle."""

    def loss(logit: Any, key: Any) -> Any:
        z = jax.random.bernoulli(key, jax.nn.sigmoid(logit), (particles,)).astype(float)
        log_q = dist.Bernoulli(logits=logit).log_prob(z)
        log_w = dist.Bernoulli(0.3).log_prob(z) + dist.Normal(z, 1.0).log_prob(1.0) - log_q
        log_z = jax.nn.logsumexp(log_w) - jnp.log(particles)
        w = jnp.exp(log_w - jnp.max(log_w))
        zero = jnp.zeros(1)
        others = jnp.append(zero, jnp.cumsum(w)[:-1]) + jnp.append(jnp.cumsum(w[::-1])[::-1][1:], zero)
        signal = log_z - baseline(log_w, jnp.log(others) + jnp.max(log_w))
        return -log_z - jnp.vdot(jax.lax.stop_gradient(signal), log_q)

    return jax.grad(loss), (0.2, jax.random.key(0))


def comparison(name: str, baseline: Baseline) -> Growth:
    """The gradient of an objective, by particles."""
    objective = getattr(sy.objectives, name)
    return growth(
        f"{name}, discrete, by particles",
        (1024, 8192, 65_536),
        lambda particles: ours(objective, particles),
        "by hand",
        lambda particles: by_hand(baseline, particles),
    )


ROWS = (lambda: comparison("iwae", mean_of_others), lambda: comparison("vimco", with_geometric_mean))
