"""What the program sees in place of a variable that is absent: a value of the distribution, without randomness."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from steelyard.distributions.distribution import has_method, sample, some_value
from steelyard.types import Distribution, stop_gradient

# Draws from these are loops. Their densities are finite, with their gradients, at every point inside of the support.
_LOOPS = dist.Gamma, dist.Beta, dist.Dirichlet, dist.Poisson, dist.GammaPoisson, dist.BetaBinomial
# So are these, of which the density far away from the location may be too small for a float.
_LOCATED_LOOPS = dist.StudentT, dist.MultivariateStudentT
_WRAPPERS = dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution


def placeholder(distribution: Distribution) -> Any:
    """Return a value of the distribution that is the same whenever it is asked for.

    It is a draw with a fixed key, unless drawing takes a loop: then it is a point inside of the support.
    """

    def drawn() -> Any:
        return sample(distribution, jax.random.key(0))

    inner: Any = _unwrapped(distribution)
    if has_method(inner, "sample", *_LOCATED_LOOPS):
        return stop_gradient(_located(distribution, inner))
    if not _is_loop(inner):
        return drawn()
    like = jax.eval_shape(drawn)
    return stop_gradient(some_value(distribution, jnp.ones(like.shape, like.dtype))).astype(like.dtype)


def _unwrapped(distribution: Any) -> Any:
    while has_method(distribution, "sample", *_WRAPPERS):
        distribution = distribution.base_dist
    return distribution


def _is_loop(distribution: Any) -> bool:
    """Tell whether a draw is a loop, or is computed from one."""
    if has_method(distribution, "sample", dist.TransformedDistribution):
        return _is_loop(_unwrapped(distribution.base_dist))
    return has_method(distribution, "sample", *_LOOPS)


def _located(distribution: Any, inner: Any) -> Any:
    """Return the location of what is wrapped, in the shape of a draw."""
    location = jnp.broadcast_to(jnp.asarray(inner.loc, float), inner.batch_shape + inner.event_shape)
    return jnp.broadcast_to(location, distribution.batch_shape + distribution.event_shape)
