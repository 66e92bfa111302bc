"""Draws from distributions, some of them in ways that are faster or reach further than NumPyro's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from steelyard.arrays.manual_axes import varying_like_results
from steelyard.compiler.categories import category_at
from steelyard.compiler.poisson import poisson
from steelyard.compiler.randomness import normal
from steelyard.distributions.distribution import has_method, sample, settled
from steelyard.types import Distribution, Key


def draw(distribution: Distribution, key: Key) -> Any:
    """Draw one value."""
    base: Any = distribution
    while has_method(base, "sample", dist.Independent):
        base = base.base_dist
    sampler = sampler_of(base)
    return sample(distribution, key) if sampler is None else sampler(base, key)


def sampler_of(distribution: Any) -> Callable[[Any, Key], Any] | None:
    """Return the function that draws in place of `sample`. A distribution that overrides `sample` is drawn by it."""
    for classes, sampler in SAMPLERS:
        if has_method(distribution, "sample", *classes):
            return sampler
    return None


def is_normal(distribution: Any) -> bool:
    """Tell whether draws are made of standard normal numbers by `normal`."""
    while has_method(distribution, "sample", dist.Independent):
        distribution = distribution.base_dist
    sampler = sampler_of(distribution)
    return is_normal(distribution.base_dist) if sampler is _transformed else sampler in (_normal, _half_normal)


def _normal(distribution: Any, key: Key) -> Any:
    return distribution.loc + distribution.scale * normal(key, distribution.batch_shape)


def _half_normal(distribution: Any, key: Key) -> Any:
    return settled(distribution, jnp.abs(distribution.scale * normal(key, distribution.batch_shape)))


def _gamma(distribution: Any, key: Key) -> Any:
    concentration = jnp.broadcast_to(jnp.asarray(distribution.concentration, float), distribution.batch_shape)
    return settled(distribution, _standard_gamma(key, concentration) / distribution.rate)


def _poisson(distribution: Any, key: Key) -> Any:
    rate = jnp.broadcast_to(jnp.asarray(distribution.rate, float), distribution.batch_shape)
    return poisson(key, jax.lax.stop_gradient(rate))


def _gamma_poisson(distribution: Any, key: Key) -> Any:
    k1, k2 = jax.random.split(key)
    rate = draw(dist.Gamma(distribution.concentration, distribution.rate, validate_args=False), k1)
    return draw(dist.Poisson(rate, validate_args=False), k2)


def _transformed(distribution: Any, key: Key) -> Any:
    """Draw before the transformation, where a draw that underflows can be put back."""
    value = draw(distribution.base_dist, key)
    for transform in distribution.transforms:
        value = transform(value)
    return settled(distribution, value)


def _hurdle(distribution: Any, key: Key) -> Any:
    """Draw zero, or a number that is not zero even where it underflows."""
    if distribution.base_dist.support.is_discrete:
        return sample(distribution, key)
    k1, k2 = jax.random.split(key)
    is_zero = jax.random.bernoulli(k1, distribution.gate, distribution.batch_shape)
    drawn = draw(distribution.base_dist, k2)
    return jnp.where(is_zero, jnp.zeros_like(drawn), drawn)


def _student(distribution: Any, key: Key) -> Any:
    """Draw a normal divided by the root of a chi-squared, which is kept from underflow.

    Further out the square of a number overflows, with which the density is computed.
    """
    k1, k2 = jax.random.split(key)
    y = normal(k1, distribution.batch_shape + distribution.event_shape)
    df = jnp.broadcast_to(jnp.asarray(distribution.df, float), distribution.batch_shape)
    ratio = jnp.minimum(jnp.sqrt(df / draw(dist.Chi2(df), k2)), jnp.finfo(y.dtype).max ** 0.4)
    if not distribution.event_shape:
        return distribution.loc + distribution.scale * y * ratio
    spread = distribution.scale_tril @ (y * ratio[..., None])[..., None]
    return distribution.loc + spread[..., 0]


def _categorical(distribution: Any, key: Key) -> Any:
    """Draw by inverting the distribution function: one random number in place of one for each category."""
    uniform = jax.random.uniform(key, distribution.batch_shape)
    return category_at(jax.lax.stop_gradient(distribution.probs), uniform)


def _expanded(distribution: Any, key: Key) -> Any:
    """Draw categories that many have the same probabilities of, which are not copied for each of them."""
    base = distribution.base_dist
    if sampler_of(base) is not _categorical:
        return sample(distribution, key)
    shape = distribution.batch_shape
    probabilities = jax.lax.stop_gradient(base.probs)
    more = range(len(shape) - len(base.batch_shape))
    return category_at(jnp.expand_dims(probabilities, tuple(more)), jax.random.uniform(key, shape))


def _standard_gamma(key: Key, concentration: Any) -> Any:
    """Draw from Gamma(concentration, 1) by rejection (Marsaglia and Tsang, 2000), for all numbers at once.

    JAX's own sampler takes one number after the other on a CPU.
    """
    shape = concentration.shape
    # Below one the density has no mode to build on: draw at concentration + 1, and scale it down.
    small = concentration < 1
    d = jax.lax.stop_gradient(jnp.where(small, concentration + 1, concentration)) - 1 / 3
    c = 1 / jnp.sqrt(9 * d)
    possible = (concentration > 0) & (concentration < jnp.inf)

    def missing(state: Any) -> Any:
        return jnp.any(possible & jnp.isnan(state[1]))

    def propose(state: Any) -> Any:
        attempt, drawn = state
        k1, k2 = jax.random.split(jax.random.fold_in(key, attempt))
        x, u = jax.random.normal(k1, shape), jax.random.uniform(k2, shape)
        v = (1 + c * x) ** 3
        # The first condition implies the second, which rounding spoils for large d.
        accepted = (u < 1 - 0.0331 * x**4) | (jnp.log(u) < 0.5 * x**2 + d * (1 - v + jnp.log(v)))
        return attempt + 1, jnp.where(jnp.isnan(drawn) & accepted & (v > 0), d * v, drawn)

    start = varying_like_results(propose, (1, jnp.full(shape, jnp.nan, d.dtype)))
    _, drawn = jax.lax.while_loop(missing, propose, start)
    fraction = jax.random.uniform(jax.random.fold_in(key, 0), shape)
    drawn *= jnp.where(small, fraction ** (1 / jax.lax.stop_gradient(concentration)), 1.0)
    # At zero, where small numbers underflow to, there is no gradient.
    drawn = jnp.where(drawn == 0, jnp.finfo(drawn.dtype).tiny, drawn)
    return _with_implicit_gradient(drawn, concentration)


@jax.custom_jvp
def _with_implicit_gradient(drawn: Any, concentration: Any) -> Any:
    """Return what was drawn, as a differentiable function of the concentration."""
    return drawn


@_with_implicit_gradient.defjvp
def _(primals: Any, tangents: Any) -> Any:
    drawn, concentration = primals
    slope: Any = jax.lax.random_gamma_grad(concentration, drawn)  # pyright: ignore[reportCallIssue]
    return drawn, slope * tangents[1]


SAMPLERS: tuple[tuple[tuple[type, ...], Callable[[Any, Key], Any]], ...] = (
    ((dist.CategoricalProbs, dist.CategoricalLogits), _categorical),
    ((dist.ExpandedDistribution,), _expanded),
    ((dist.Normal,), _normal),
    ((dist.HalfNormal,), _half_normal),
    ((dist.Gamma,), _gamma),
    ((dist.Poisson,), _poisson),
    ((dist.GammaPoisson,), _gamma_poisson),
    ((dist.TransformedDistribution,), _transformed),
    ((dist.StudentT, dist.MultivariateStudentT), _student),
    # Not in every release of NumPyro.
    (((dist.HurdleProbs,) if hasattr(dist, "HurdleProbs") else ()), _hurdle),
)
