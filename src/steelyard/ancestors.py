"""Ancestors of particles, and what particles take from them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Rearrangement(ABC):
    """Ancestors in a form that is faster to follow than an array of indices."""

    indices: Any

    @abstractmethod
    def take(self, x: Any) -> Any:
        """Return the array in which each particle holds what its ancestor held."""

    @abstractmethod
    def then(self, after: Any) -> Any:
        """Return the ancestors of ancestors: those in `after` are descendants of these."""


def composed(ancestors: Any, after: Any) -> Any:
    """Return the ancestors of ancestors."""
    return ancestors.then(after) if isinstance(ancestors, Rearrangement) else take(ancestors, after)


def indices_of(ancestors: Any) -> Any:
    """Return ancestors as an array of indices."""
    return ancestors.indices if isinstance(ancestors, Rearrangement) else ancestors


def take(values: Any, ancestors: Any) -> Any:
    """Return the tree of arrays in which particle l holds what particle `ancestors[l]` held."""

    def one(x: Any) -> Any:
        if isinstance(ancestors, Rearrangement):
            return ancestors.take(x)
        if isinstance(x, np.ndarray) and isinstance(ancestors, np.ndarray):
            return x[ancestors]
        # Not x.at[...].get: it traces the same equations in five times the time, and a resampling takes every array.
        x, indices = jnp.asarray(x), jnp.asarray(ancestors)
        axes = tuple(range(indices.ndim, indices.ndim + x.ndim - 1))
        rows = jax.lax.GatherDimensionNumbers(axes, collapsed_slice_dims=(0,), start_index_map=(0,))
        indices = jax.lax.expand_dims(indices, (indices.ndim,))
        return jax.lax.gather(x, indices, rows, (1, *x.shape[1:]), mode="promise_in_bounds")

    return jax.tree.map(one, values)


@dataclass(frozen=True, eq=False)
class DeferredGather:
    """Values that are still to be taken from ancestors, when somebody asks for them.

    In a long sampler most variables are taken again and again before anyone looks at them, if ever.
    """

    values: Any
    ancestors: Any

    def now(self) -> Any:
        return take(self.values, self.ancestors)
