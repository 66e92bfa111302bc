"""Which arrays of the models learn."""

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import ArgumentError

# Which arrays learn, of those that can: a function of the name and the array, a tree of Booleans, or None for all.
Trainable: TypeAlias = Callable[[str, Any], bool] | Any


def partition(models: Any, trainable: Trainable = None) -> tuple[Any, Any]:
    """Split models into the parameters, which learn, and all the rest; `eqx.combine` puts them together again.

    Arrays of floating-point numbers can learn. Of Flax NNX modules and states that hold variables, those of type
    `nnx.Param` can, and nothing else: not the statistics of a BatchNorm, for example. Nor can an `eqx.nn.State`.

    Raises:
        ArgumentError: there is nothing to learn, a parameter is complex, or `trainable` does not fit the models.
    """
    models = jax.tree.map(lambda x: jnp.asarray(x, float) if isinstance(x, float) else x, models)
    can = list(_learns(models))
    learns = [a and b for a, b in zip(can, _chosen(models, trainable), strict=True)]
    if not any(learns):
        raise ArgumentError(
            "train: trainable chooses nothing of what could learn. It is True where an array of the models is to learn."
            if any(can)
            else "train: the models have nothing to learn: no array of floating-point numbers, or, in a Flax NNX "
            "module, none in an nnx.Param."
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

    def is_state(x: Any) -> bool:
        return isinstance(x, eqx.nn.State | eqx.nn.StateIndex)

    def is_variable(x: Any) -> bool:
        return nnx is not None and isinstance(x, nnx.Variable)

    def is_whole(x: Any) -> bool:
        return is_state(x) or (nnx is not None and isinstance(x, nnx.Pytree | nnx.State | nnx.Variable))

    for part in jax.tree.leaves(models, is_leaf=is_whole):
        if is_state(part):
            yield from (False for _ in jax.tree.leaves(part))
            continue
        inner = jax.tree.leaves(part, is_leaf=is_variable)
        # States without variables, as nnx.to_pure_dict or nnx.as_pure make them, are arrays like any others.
        typed = any(map(is_variable, inner))
        for x in inner:
            learns = not typed or (nnx is not None and isinstance(x, nnx.Param))
            yield from (learns and eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(x))


def _chosen(models: Any, trainable: Trainable) -> list[bool]:
    """Tell for each leaf whether it was asked to learn."""
    leaves = jax.tree.leaves_with_path(models)
    if trainable is None:
        return [True] * len(leaves)
    # A module of Booleans may be callable, as the module is that it was made from.
    if callable(trainable) and not all(map(_is_flag, jax.tree.leaves(trainable))):
        chosen = [trainable(jax.tree_util.keystr(path, simple=True, separator="."), x) for path, x in leaves]
    else:
        try:
            chosen = jax.tree.leaves(jax.tree.broadcast(trainable, models))
        except ValueError as error:
            raise ArgumentError(
                f"train: the tree of trainable is not one of the models, nor the beginning of one ({error}). Give True "
                f"or False for each part, as {{'encoder': True, 'decoder': False}}, or a function of name and array."
            ) from error
    if wrong := [x for x in chosen if not _is_flag(x)]:
        raise ArgumentError(f"train: trainable tells True or False of each array, got {wrong[0]!r}.")
    return [bool(x) for x in chosen]


def _is_flag(x: Any) -> bool:
    return isinstance(x, bool | np.bool_)
