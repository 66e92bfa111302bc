"""The programs of Figure 5 in the paper: a ring of eight Gaussians, a path of densities to it, and kernels."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray

import steelyard as sy

MODES, RADIUS, VARIANCE, HIDDEN = 8, 10.0, 0.5, 50
LOG_Z = math.log(MODES)
UNIT = math.log(math.expm1(1.0))  # softplus(UNIT) = 1
ANGLES = 2 * jnp.pi * jnp.arange(MODES) / MODES
CENTERS = RADIUS * jnp.stack([jnp.cos(ANGLES), jnp.sin(ANGLES)], axis=-1)

# Every number is in its support, so there is nothing to validate.
initial = dist.Normal(jnp.zeros(2), 5.0, validate_args=False)


def log_ring(x: Float[Array, "2"]) -> Float[Array, ""]:
    """The target: the sum of eight Gaussian densities, which integrates to 8."""
    # |x - center|^2 as a product with all centers, which is faster than eight short sums.
    squares = jnp.sum(x**2) - 2 * CENTERS @ x + RADIUS**2
    return jax.nn.logsumexp(-0.5 * squares / VARIANCE) - jnp.log(2 * jnp.pi * VARIANCE)


def annealed(beta: Float[Array, ""]) -> Any:
    """The density of the path at beta: initial^(1 - beta) ring^beta."""

    def p(s: sy.State) -> Float[Array, "2"]:
        x = s.sample("x", initial)
        s.factor("heat", beta * (log_ring(x) - initial.log_prob(x).sum()))
        return x

    return p


class Kernel(eqx.Module):
    """A Gaussian kernel whose mean and variance are networks of the point; at first a step of unit variance."""

    hidden: eqx.nn.Linear
    moments: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key)
        self.hidden = eqx.nn.Linear(2, HIDDEN, key=keys[0])
        still = jnp.zeros((4, HIDDEN)), jnp.array([0.0, 0.0, UNIT, UNIT])
        moments = eqx.nn.Linear(HIDDEN, 4, key=keys[1])
        self.moments = eqx.tree_at(lambda layer: (layer.weight, layer.bias), moments, still)

    def __call__(self, s: sy.State, x: Float[Array, "2"]) -> Float[Array, "2"]:
        offset, spread = jnp.split(self.moments(jax.nn.relu(self.hidden(x))), 2)
        return s.sample("x", dist.Normal(x + offset, jnp.sqrt(jax.nn.softplus(spread))))


class Sampler(NamedTuple):
    """What is learned: for each level a forward and a reverse kernel, and the schedule in between as logits."""

    forward: Kernel
    reverse: Kernel
    logits: Float[Array, " levels-1"]

    @classmethod
    def start(cls, key: PRNGKeyArray, densities: int) -> "Sampler":
        """Return the sampler before training: kernels that do next to nothing, and a linear schedule."""
        keys = jax.random.split(key, (2, densities - 1))
        forward, reverse = (jax.vmap(Kernel)(k) for k in keys)
        between = jnp.linspace(0.0, 1.0, densities)[1:-1]
        return cls(forward, reverse, jnp.log(between) - jnp.log1p(-between))

    def schedule(self, *, learned: bool) -> Float[Array, " levels+1"]:
        """Return beta for every density of the path."""
        logits = self.logits if learned else jax.lax.stop_gradient(self.logits)
        return jnp.concatenate([jnp.zeros(1), jax.nn.sigmoid(logits), jnp.ones(1)])
