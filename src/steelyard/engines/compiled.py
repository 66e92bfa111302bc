"""Draws of single particles, compiled once for a kind of distribution.

In plain Python every operation of a draw is a call of JAX, and a draw by rejection, such as Gamma's, compiles its loop
again each time. Here a draw is one call. Densities are in `deferred.py`.
"""

from collections.abc import Set
from functools import partial
from typing import Any, NamedTuple

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


class Parts(NamedTuple):
    """The parameters of a distribution, and what they are the parameters of."""

    leaves: list[Any]
    structure: Any


class Taking:
    """Takes distributions apart: a draw and the density after it once, and distributions of one structure alike."""

    def __init__(self) -> None:
        self._drawn: tuple[Any, Parts | None] | None = None
        self._kept: dict[Any, Set[str]] = {}
        self._types: dict[Any, Any] = {}

    def apart(self, distribution: Any) -> Parts | None:
        """Return the parts of a distribution that comes through a compiled function; None, if it may not."""
        # The program may change a distribution after it drew from it: what is known holds for one density.
        drawn, self._drawn = self._drawn, None
        return drawn[1] if drawn is not None and drawn[0] is distribution else self._apart(distribution)

    def to_draw(self, distribution: Any) -> Parts | None:
        """Return the parts, and remember them for the density that comes next."""
        self._drawn = distribution, self._apart(distribution)
        return self._drawn[1]

    def _apart(self, distribution: Any) -> Parts | None:
        if type(distribution) is dist.Independent:
            if self._apart(distribution.base_dist) is None:
                return None
        elif type(distribution) not in KINDS:
            return None
        leaves, structure = jax.tree.flatten(distribution)
        if structure not in self._kept:
            self._kept[structure] = vars(jax.tree.unflatten(structure, leaves)).keys() | NOT_NEEDED
        # Nothing was set on this very object, such as a method of its own, and its parameters are numbers.
        if not vars(distribution).keys() <= self._kept[structure] or not all(map(is_numeric, leaves)):
            return None
        return Parts(self._of_one_type(leaves), structure)

    def _of_one_type(self, leaves: list[Any]) -> list[Any]:
        """Return parameters in which numbers are arrays, where all are of one type.

        JAX compiles again for each combination of numbers and arrays. Arrays stay as they are: to read one would be
        to wait for it.
        """
        types = {self._type_of(x) for x in leaves}
        if len(types) > 1:
            return leaves
        return [np.asarray(x, dtype) if isinstance(x, float | int) else x for x in leaves for dtype in types]

    def _type_of(self, x: Any) -> Any:
        known = x.dtype if isinstance(x, jax.Array | np.ndarray | np.generic) else type(x)
        if known not in self._types:
            self._types[known] = jnp.result_type(x)
        return self._types[known]


class CompiledSites:
    """Draws the variables of one particle of one level, as `Sites` does."""

    def __init__(self, level: LevelKeys, particle: int, taking: Taking) -> None:
        self._level = level
        self._particle = particle
        self._taking = taking

    def __call__(self, site: int, address: str, distribution: Distribution) -> Any:
        if (parts := self._taking.to_draw(distribution)) is not None:
            return _drawn(self._level, self._particle, site, *parts)
        return Sites(self._level, self._particle)(site, address, distribution)


def is_numeric(x: Any) -> bool:
    """Tell whether this is a number or an array of numbers."""
    return isinstance(x, jax.Array | float | int) or isinstance(x, np.ndarray | np.generic) and x.dtype != object


@partial(jax.jit, static_argnums=4)
def _drawn(level: LevelKeys, particle: Any, site: Any, leaves: list[Any], structure: Any) -> Any:
    return draw(jax.tree.unflatten(structure, leaves), level(particle, site))
