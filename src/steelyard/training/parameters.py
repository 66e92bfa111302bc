"""Which arrays of the models learn."""

import sys
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from steelyard.errors import ArgumentError


def partition(models: Any) -> tuple[Any, Any]:
    """Split models into the parameters, which learn, and all the rest; `eqx.combine` puts them together again.

    Arrays of floating-point numbers learn. Of Flax NNX modules and states that hold variables, those of type
    `nnx.Param` do, and nothing else: not the statistics of a BatchNorm, for example.

    Raises:
        ArgumentError: there is nothing to learn, or a parameter is complex.
    """
    models = jax.tree.map(lambda x: jnp.asarray(x, float) if isinstance(x, float) else x, models)
    learns = list(_learns(models))
    if not any(learns):
        raise ArgumentError(
            "train: the models have nothing to learn: no array of floating-point numbers, or, in a Flax NNX module, "
            "none in an nnx.Param."
        )
    for (path, x), chosen in zip(jax.tree.leaves_with_path(models), learns, strict=True):
        if chosen and jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise ArgumentError(
                f"train: the parameter models{jax.tree_util.keystr(path)} is {x.dtype}, but parameters are real. Keep "
                f"its real and imaginary parts as two arrays, and use jax.lax.complex(real, imaginary) in the program."
            )
    return eqx.partition(models, jax.tree.unflatten(jax.tree.structure(models), learns))


def _learns(models: Any) -> Iterator[bool]:
    """Tell for each leaf whether it learns."""
    # Who has a module of NNX has imported it.
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        yield from map(eqx.is_inexact_array, jax.tree.leaves(models))
        return

    def is_variable(x: Any) -> bool:
        return isinstance(x, nnx.Variable)

    def is_nnx(x: Any) -> bool:
        return isinstance(x, nnx.Pytree | nnx.State | nnx.Variable)

    for part in jax.tree.leaves(models, is_leaf=is_nnx):
        inner = jax.tree.leaves(part, is_leaf=is_variable)
        # States without variables, as nnx.to_pure_dict or nnx.as_pure make them, are arrays like any others.
        typed = any(map(is_variable, inner))
        for x in inner:
            learns = isinstance(x, nnx.Param) or not typed
            yield from (learns and eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(x))
