"""What the program sees in place of a variable that is absent: a value of the distribution, without randomness."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from steelyard.distributions.distribution import has_method, sample, some_value
from steelyard.types import Distribution, stop_gradient

# Draws from these are loops. Their densities are finite, with their gradients, at every point inside of the support.
_LOOPS = dist.Gamma, dist.Beta, dist.Dirichlet, dist.Poisson, dist.GammaPoisson


def placeholder(distribution: Distribution) -> Any:
    """Return a value of the distribution that is the same whenever it is asked for.

    It is a draw with a fixed key, unless drawing takes a loop: then it is a point inside of the support.
    """

    def drawn() -> Any:
        return sample(distribution, jax.random.key(0))

    if not _is_loop(distribution):
        return drawn()
    like = jax.eval_shape(drawn)
    return stop_gradient(some_value(distribution, jnp.ones(like.shape, like.dtype))).astype(like.dtype)


def _is_loop(distribution: Any) -> bool:
    while has_method(distribution, "sample", dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution):
        distribution = distribution.base_dist
    return has_method(distribution, "sample", *_LOOPS)
