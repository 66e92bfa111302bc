"""Importance sampling of a logistic regression: 20 weights, 500 points, 100,000 particles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.measure import Row, compare

PARTICLES, WEIGHTS, POINTS = 100_000, 20, 500


def model(s: sy.State, xs: Any, ys: Any) -> None:
    w = s.sample("w", dist.Normal(jnp.zeros(WEIGHTS), 1.0))
    s.observe("y", dist.Bernoulli(logits=w @ xs.T), ys)


def guide(s: sy.State, xs: Any, ys: Any) -> None:
    s.sample("w", dist.Normal(0.1 * (ys - 0.5) @ xs, 0.3))


def steelyard(key: Any, xs: Any, ys: Any) -> Any:
    out = sy.evaluate(sy.propose(model, guide), key, xs, ys, particles=PARTICLES)
    return out.log_z, out.expect(lambda t: t["w"])


def by_hand(key: Any, xs: Any, ys: Any) -> Any:
    """The same with arrays of particles; the densities are NumPyro's here too, which are faster than one's own."""
    proposal = dist.Normal(0.1 * (ys - 0.5) @ xs, 0.3)
    w = proposal.sample(key, (PARTICLES,))
    log_joint = dist.Normal(0.0, 1.0).log_prob(w).sum(axis=1) + dist.Bernoulli(logits=w @ xs.T).log_prob(ys).sum(axis=1)
    log_weight = log_joint - proposal.log_prob(w).sum(axis=1)
    log_z = jax.nn.logsumexp(log_weight) - jnp.log(PARTICLES)
    return log_z, jax.nn.softmax(log_weight) @ w


def run() -> list[Row]:
    """Compare with the same algorithm in plain JAX, after checking that both estimate the same."""
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    xs = jax.random.normal(k1, (POINTS, WEIGHTS))
    ys = (jax.random.uniform(k2, (POINTS,)) < jax.nn.sigmoid(xs @ jax.random.normal(k3, (WEIGHTS,)))).astype(float)
    row = compare(
        f"importance sampling, logistic regression, {PARTICLES:,} particles",
        {"steelyard": steelyard, "hand-written JAX": by_hand},
        (jax.random.key(1), xs, ys),
        "hand-written JAX",
    )
    return [row]
