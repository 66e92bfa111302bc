"""Draws of categories and of numbers of events."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.growth.measure import Growth, Job, growth
from steelyard.compiler.draws import draw
from steelyard.compiler.randomness import particle_key, scattered

PARTICLES, FEWER = 100_000, 10_000


def drawn(distribution: Any, particles: int) -> Any:
    """What a program draws that samples one variable."""

    def program(s: sy.State) -> None:
        s.sample("x", distribution)

    return lambda key: sy.evaluate(program, key, particles=particles).trace["x"]


def shared_categories() -> Growth:
    """Categories whose probabilities all particles share."""

    def probabilities(size: int) -> Any:
        return jax.random.dirichlet(jax.random.key(1), jnp.ones(size))

    def ours(size: int) -> Job:
        return drawn(dist.Categorical(probabilities(size)), PARTICLES), (jax.random.key(0),)

    def by_hand(size: int) -> Job:
        ends = jnp.cumsum(probabilities(size))
        return lambda key: jnp.searchsorted(ends, jax.random.uniform(key, (PARTICLES,))), (jax.random.key(0),)

    return growth("categories, shared, 100,000 particles", (100, 1000, 10_000), ours, "searchsorted", by_hand)


def own_categories() -> Growth:
    """Categories whose probabilities differ between particles."""

    def probabilities(size: int) -> Any:
        return jax.random.dirichlet(jax.random.key(1), jnp.ones(size), (FEWER,))

    def ours(size: int) -> Job:
        def f(key: Any, p: Any) -> Any:
            words = scattered(key)
            return jax.vmap(lambda l, p: draw(dist.Categorical(p), particle_key(words, l)))(jnp.arange(FEWER), p)

        return f, (jax.random.key(0), probabilities(size))

    def by_hand(size: int) -> Job:
        def f(key: Any, p: Any) -> Any:
            return jax.vmap(jnp.searchsorted)(jnp.cumsum(p, axis=-1), jax.random.uniform(key, (FEWER,)))

        return f, (jax.random.key(0), probabilities(size))

    return growth("categories, one's own, 10,000 particles", (100, 300, 1000), ours, "searchsorted", by_hand)


def events(name: str, distribution: Any) -> Growth:
    """Numbers of events, next to NumPyro's own draws."""
    return growth(
        f"{name}, by particles",
        (1000, 10_000, 100_000),
        lambda size: (drawn(distribution, size), (jax.random.key(0),)),
        "NumPyro",
        lambda size: (lambda key: distribution.sample(key, (size,)), (jax.random.key(0),)),
    )


ROWS = (
    shared_categories,
    own_categories,
    lambda: events("Poisson(5)", dist.Poisson(5.0)),
    lambda: events("Poisson(50)", dist.Poisson(50.0)),
    lambda: events("NegativeBinomial2(5, 2)", dist.NegativeBinomial2(5.0, 2.0)),
)
