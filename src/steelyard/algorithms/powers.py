"""The next power of a likelihood: how far it can be raised before the particles degenerate.

All particles follow it, so that it must be the same on any number of devices: sums are exact.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from steelyard.devices.sums import total_of_fractions
from steelyard.particles.weights import scaled

# Halvings of the interval: enough for all digits of a number that is a billionth of it.
HALVINGS = 64


def conditional_ess(
    log_weight: Float[Array, " particles"], log_increment: Float[Array, " particles"], power: Any = 1.0
) -> Float[Array, ""]:
    """Return the conditional effective sample size of an increment to some power, as a fraction of the particles.

        (sum W v)^2 / sum W v^2    for normalised weights W and increments v

    With equal weights it is the effective sample size; it says how good a proposal the particles as they are would be
    (Zhou, Johansen and Aston, 2016).
    """
    weight = scaled(log_weight)
    alive = (weight > 0) & (log_increment > -jnp.inf)
    # The difference first: a difference of products is rounded once or twice, as the compiler likes.
    below = log_increment - jnp.max(jnp.where(alive, log_increment, -jnp.inf))
    v = jnp.where(alive, jnp.exp(power * below), 0.0)
    return total_of_fractions(weight * v) ** 2 / (total_of_fractions(weight) * total_of_fractions(weight * v**2))


def next_power(
    log_weight: Float[Array, " particles"],
    log_likelihood: Float[Array, " particles"],
    beta: Float[Array, ""],
    ess: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Return the power of the likelihood to go to from `beta`: the largest with this conditional sample size, or one.

    Particles of likelihood zero die at any power, and do not count.
    """
    weight = scaled(log_weight)
    alive = total_of_fractions(jnp.where(log_likelihood > -jnp.inf, weight, 0.0)) / total_of_fractions(weight)

    def is_enough(step: Any) -> Any:
        return conditional_ess(log_weight, log_likelihood, step) >= ess * alive

    def halved(_: Any, interval: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = interval
        middle = (low + high) / 2
        enough = is_enough(middle)
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    rest = 1 - beta
    low, _ = jax.lax.fori_loop(0, HALVINGS, halved, (jnp.zeros_like(rest), rest))
    return jnp.where(is_enough(rest), 1.0, beta + low)
