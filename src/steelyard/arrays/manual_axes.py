"""Loops inside of `jax.shard_map`: what goes round must vary over the axes of the mesh that its results vary over."""

from collections.abc import Callable
from typing import Any

import jax


def varying_like_results(step: Callable[[Any], Any], carry: Any) -> Any:
    """Return the carry of a loop with the axes of the mesh over which `step(carry)` varies.

    `shard_map` tells values that are the same on all devices from those that are not. A loop that begins with a
    constant has to say that it may become different. Outside of `shard_map` nothing is done.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return carry
    while True:
        leaves, structure = jax.tree.flatten(carry)
        results = jax.tree.leaves(jax.eval_shape(step, carry))
        missing = [_axes(after) - _axes(jax.typeof(before)) for before, after in zip(leaves, results, strict=True)]
        if not any(missing):
            return carry
        wider = [
            jax.lax.pcast(x, tuple(axes), to="varying") if axes else x for x, axes in zip(leaves, missing, strict=True)
        ]
        carry = jax.tree.unflatten(structure, wider)


def _axes(array_type: Any) -> frozenset[str]:
    # The attribute was called `vma` in some versions of JAX.
    manual = getattr(array_type, "manual_axis_type", None)
    return getattr(array_type, "vma", frozenset()) if manual is None else manual.varying
