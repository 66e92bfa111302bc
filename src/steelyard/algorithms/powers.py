"""The next power of a likelihood: how far it can be raised before the particles degenerate."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from steelyard.particles.weights import normalize

# Halvings of the interval: enough for all digits of a number that is a billionth of it.
HALVINGS = 64


def conditional_ess(
    log_weight: Float[Array, " particles"], log_increment: Float[Array, " particles"]
) -> Float[Array, ""]:
    """Return the conditional effective sample size of an increment, as a fraction of the particles.

        (sum W v)^2 / sum W v^2    for normalised weights W and increments v

    With equal weights it is the effective sample size; it says how good a proposal the particles as they are would be
    (Zhou, Johansen and Aston, 2016).
    """
    share = normalize(log_weight)
    alive = (share > 0) & (log_increment > -jnp.inf)
    v = jnp.where(alive, jnp.exp(log_increment - jnp.max(jnp.where(alive, log_increment, -jnp.inf))), 0.0)
    return jnp.sum(share * v) ** 2 / jnp.sum(share * v**2)


def next_power(
    log_weight: Float[Array, " particles"],
    log_likelihood: Float[Array, " particles"],
    beta: Float[Array, ""],
    ess: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Return the power of the likelihood to go to from `beta`: the largest with this conditional sample size, or one.

    Particles of likelihood zero die at any power, and do not count.
    """
    alive = jnp.sum(jnp.where(log_likelihood > -jnp.inf, normalize(log_weight), 0.0))

    def is_enough(step: Any) -> Any:
        return conditional_ess(log_weight, step * log_likelihood) >= ess * alive

    def halved(_: Any, interval: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = interval
        middle = (low + high) / 2
        enough = is_enough(middle)
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    rest = 1 - beta
    low, _ = jax.lax.fori_loop(0, HALVINGS, halved, (jnp.zeros_like(rest), rest))
    return jnp.where(is_enough(rest), 1.0, beta + low)
