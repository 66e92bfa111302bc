"""What was observed: one value for all particles, where they have the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from steelyard.maps import Map
from steelyard.semantics.record import Observed


def observed_values(held: Map[Any]) -> Map[Observed]:
    """Return what particles observed at each address, the value of the first one that did.

    Whether all have the same is an array: under `jit` it is known when the program has run.
    """
    return Map({a: _first(held[a], held.present(a)) for a in held})


def _first(values: Any, present: Any) -> Observed:
    if isinstance(values, np.ndarray) and values.dtype == object:
        # Single particles, each with a tree of its own.
        first, *others = values[np.broadcast_to(present, values.shape)]
        return Observed(first, np.asarray(all(_are_equal(first, other) for other in others)))
    leaves, structure = jax.tree.flatten(values)
    pairs = [_compared(x, present) for x in leaves]
    is_shared = jnp.all(jnp.stack([same for _, same in pairs]))
    return Observed(jax.tree.unflatten(structure, [x for x, _ in pairs]), is_shared)


def _compared(x: Array, present: Any) -> tuple[Array, Array]:
    mask = jnp.broadcast_to(present, x.shape[:1])
    first = x[jnp.argmax(mask)]
    # Data that are missing are NaN in all particles, and that is the same as well.
    same = (x == first[None]) | ((x != x) & (first != first)[None])
    return first, jnp.all(same.reshape(len(x), -1).all(axis=1) | ~mask) & jnp.any(mask)


def _are_equal(one: Any, other: Any) -> bool:
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(x, y, equal_nan=np.issubdtype(x.dtype, np.inexact)) for x, y in pairs)
