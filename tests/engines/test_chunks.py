"""Chunks of particles: the same results and gradients, in less memory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy

X = jax.random.normal(jax.random.key(1), (400, 32))


def model(s: sy.State, x: Any) -> Any:
    w = s.sample("w", dist.Normal(jnp.zeros(32), 1.0))
    s.observe("x", dist.Normal(jnp.tanh(0.1 * x @ w), 0.7), jnp.ones(x.shape[0]))
    return w, x


def kernel(s: sy.State, value: Any) -> Any:
    return s.sample("w", dist.Normal(0.9 * value[0], 0.3)), value[1]


def network(s: sy.State, location: Any, x: Any) -> None:
    w = s.sample("w", dist.Normal(jnp.full(32, location), 1.0))
    s.observe("x", dist.Normal(x.T @ jnp.tanh(0.1 * x @ w), 20.0), jnp.ones(32))


def bound(location: Any, key: Any, particles: int, chunk: int | None) -> Any:
    q = sy.propose(network, network, objective=sy.objectives.iwae)
    return sy.evaluate(q, key, location, X, particles=particles, chunk=chunk).loss


def temporaries(function: Any, particles: int, chunk: int | None) -> int:
    run = jax.jit(lambda location, key: function(location, key, particles, chunk))
    return run.lower(0.1, jax.random.key(0)).compile().memory_analysis().temp_size_in_bytes


def test_the_particles_are_the_same() -> None:
    """The number of particles is no multiple of the chunk, and one program after the other resamples."""
    q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(sy.propose(model, model))))
    run = jax.jit(lambda key, x, chunk: sy.evaluate(q, key, x, particles=1001, chunk=chunk), static_argnums=2)
    whole, parts = run(jax.random.key(0), X, None), run(jax.random.key(0), X, 100)
    np.testing.assert_allclose(whole.log_weight, parts.log_weight, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(whole.trace["w"], parts.trace["w"], rtol=1e-4, atol=1e-5)


def test_gradients_are_the_same() -> None:
    whole, parts = (jax.grad(bound)(0.1, jax.random.key(0), 101, chunk) for chunk in (None, 20))
    assert abs(whole) > 1e-3
    np.testing.assert_allclose(parts, whole, rtol=1e-3)


def test_memory_is_bounded_also_for_gradients() -> None:
    for function in (bound, jax.grad(bound)):
        assert temporaries(function, 20_000, 500) < temporaries(function, 20_000, None) / 4
