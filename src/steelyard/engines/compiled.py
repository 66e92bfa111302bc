"""Draws and densities of single particles, each compiled once for a kind of distribution.

In plain Python every operation of a draw is a call of JAX, and a draw by rejection, such as Gamma's, compiles its loop
again each time. Here a draw is one call, and so is a density.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from steelyard.compiler.draws import draw
from steelyard.compiler.keys import LevelKeys, Sites
from steelyard.types import Distribution

# Compiled functions take distributions as pytrees. Of NumPyro's, some lose their support on the way (Levy), and some
# need their parameters as numbers (Multinomial): only these are known to come through whole. A subclass is another
# distribution.
KINDS = frozenset(
    {
        dist.BernoulliLogits,
        dist.BernoulliProbs,
        dist.Beta,
        dist.CategoricalLogits,
        dist.CategoricalProbs,
        dist.Cauchy,
        dist.Dirichlet,
        dist.Exponential,
        dist.Gamma,
        dist.Gumbel,
        dist.HalfCauchy,
        dist.HalfNormal,
        dist.InverseGamma,
        dist.Laplace,
        dist.LogNormal,
        dist.Logistic,
        dist.Normal,
        dist.Poisson,
        dist.StudentT,
        dist.Uniform,
    }
)
# What an `Independent` loses, and neither draws nor densities look at.
NOT_NEEDED = {"reparametrized_params"}


class CompiledSites:
    """Draws the variables of one particle of one level, as `Sites` does."""

    def __init__(self, level: LevelKeys, particle: int) -> None:
        self._level = level
        self._particle = particle

    def __call__(self, site: int, address: str, distribution: Distribution) -> Any:
        if comes_through(distribution):
            return _drawn(self._level, self._particle, site, *_parts(distribution))
        return Sites(self._level, self._particle)(site, address, distribution)


def density(log_prob: Callable[[Any, Any], Any], distribution: Any, value: Any) -> Any:
    """Compute a density."""
    if comes_through(distribution) and _is_numeric(value):
        return _density(log_prob, value, *_parts(distribution))
    return log_prob(distribution, value)


def comes_through(distribution: Any) -> bool:
    """Tell whether a distribution is the same after it went through a compiled function as a pytree."""
    if type(distribution) is dist.Independent:
        return _is_plain(distribution) and comes_through(distribution.base_dist)
    return type(distribution) in KINDS and _is_plain(distribution)


def _is_plain(distribution: Any) -> bool:
    """Tell whether nothing was set on this very object, such as a method of its own, and its parameters are numbers."""
    leaves, structure = jax.tree.flatten(distribution)
    kept = vars(jax.tree.unflatten(structure, leaves)).keys()
    return vars(distribution).keys() - kept <= NOT_NEEDED and all(map(_is_numeric, leaves))


def _is_numeric(x: Any) -> bool:
    return isinstance(x, jax.Array | float | int) or isinstance(x, np.ndarray | np.generic) and x.dtype != object


def _parts(distribution: Any) -> tuple[list[Any], Any]:
    """Return the parameters, and what they are the parameters of.

    JAX compiles again for each combination of numbers and arrays. Where all are of one type, numbers become
    arrays. Arrays stay as they are: to read one would be to wait for it.
    """
    leaves, structure = jax.tree.flatten(distribution)
    types = {jnp.result_type(x) for x in leaves}
    if len(types) == 1:
        (dtype,) = types
        leaves = [np.asarray(x, dtype) if isinstance(x, float | int) else x for x in leaves]
    return leaves, structure


@partial(jax.jit, static_argnums=4)
def _drawn(level: LevelKeys, particle: Any, site: Any, leaves: list[Any], structure: Any) -> Any:
    return draw(jax.tree.unflatten(structure, leaves), level(particle, site))


@partial(jax.jit, static_argnums=(0, 3))
def _density(log_prob: Callable[[Any, Any], Any], value: Any, leaves: list[Any], structure: Any) -> Any:
    return log_prob(jax.tree.unflatten(structure, leaves), value)
