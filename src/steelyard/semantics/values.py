"""What programs are given and return: a tree in which some leaves differ between particles and some are shared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.maps import select, take


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Values:
    """A tree of leaves, and for each of them whether it has a particle axis.

    Data is shared: it is passed on from program to program as it is, never copied for each particle.
    """

    leaves: tuple[Any, ...]
    varies: tuple[bool, ...]
    structure: Any  # jax.tree_util.PyTreeDef is not a type to a type checker
    # Of arguments: the log density of the draws that are not reparameterised and that the values depend on.
    score: Any = None

    @classmethod
    def shared(cls, tree: Any) -> "Values":
        """Return values that are the same for every particle."""
        leaves, structure = jax.tree.flatten(tree)
        return cls(tuple(leaves), (False,) * len(leaves), structure)

    @classmethod
    def each(cls, objects: np.ndarray) -> "Values":
        """Return one Python object for each particle, from an array of objects."""
        return cls((objects,), (True,), jax.tree.structure(0))

    @property
    def are_objects(self) -> bool:
        """Whether these are Python objects, one for each particle."""
        return len(self.leaves) == 1 and getattr(self.leaves[0], "dtype", None) == np.dtype(object)

    def as_arguments(self, score: Any = None) -> "Values":
        """Return the tuple of arguments of a program that is called with these values."""
        return Values(self.leaves, self.varies, jax.tree_util.treedef_tuple((self.structure,)), score)

    def reindex(self, ancestors: Any) -> "Values":
        """Return the values in which particle l holds what particle `ancestors[l]` held; themselves, if None."""
        if ancestors is None:
            return self
        return replace(self.map_varying(lambda leaf: take(leaf, ancestors)), score=take(self.score, ancestors))

    def map_varying(self, function: Callable[[Any], Any]) -> "Values":
        """Apply a function to the leaves that differ between particles."""
        leaves = tuple(function(x) if v else x for x, v in zip(self.leaves, self.varies, strict=True))
        return replace(self, leaves=leaves)

    def varying(self) -> list[Any]:
        """Return the leaves that differ between particles."""
        return [x for x, v in zip(self.leaves, self.varies, strict=True) if v]

    def with_varying(self, leaves: list[Any]) -> "Values":
        """Return the values with other leaves in the place of those that differ between particles."""
        remaining = iter(leaves)
        every = tuple(next(remaining) if v else x for x, v in zip(self.leaves, self.varies, strict=True))
        return replace(self, leaves=every)

    def with_leaves(self, leaves: Mapping[int, Any]) -> "Values":
        """Return the values with other leaves, which differ between particles, at some numbers."""
        varies = tuple(v or i in leaves for i, v in enumerate(self.varies))
        return replace(self, leaves=tuple(leaves.get(i, x) for i, x in enumerate(self.leaves)), varies=varies)

    def varying_like(self, other: "Values", particles: int) -> "Values":
        """Return the values with a particle axis in every array that has one in the other."""
        leaves = tuple(
            jnp.broadcast_to(x, (particles, *np.shape(x))) if there and not (here or is_static(x)) else x
            for x, here, there in zip(self.leaves, self.varies, other.varies, strict=True)
        )
        return Values(leaves, tuple(a or b for a, b in zip(self.varies, other.varies, strict=True)), self.structure)

    def chosen(self, mask: Any, other: "Values") -> "Values":
        """Return these values where the mask holds, and the other ones elsewhere."""
        size = mask.shape[-1]
        ours, theirs = self.varying_like(other, size), other.varying_like(self, size)
        pairs = zip(ours.leaves, theirs.leaves, ours.varies, strict=True)
        return replace(ours, leaves=tuple(select(mask, x, y) if v and x is not y else x for x, y, v in pairs))

    def of_particle(self, index: int) -> Any:
        """Return the tree of one particle."""
        return self.map_varying(lambda leaf: leaf[index]).tree

    @property
    def tree(self) -> Any:
        """The tree of leaves, with and without a particle axis as they are."""
        return jax.tree.unflatten(self.structure, self.leaves)

    def broadcast(self, shape: tuple[int, ...]) -> Any:
        """Return the tree with a particle axis, the last one of `shape`, in every array."""

        def expand(leaf: Any, varies: bool) -> Any:
            if varies or is_static(leaf):
                return leaf
            leaf, batch = jnp.asarray(leaf), len(shape) - 1
            return jnp.broadcast_to(jnp.expand_dims(leaf, batch), shape + leaf.shape[batch:])

        return jax.tree.unflatten(
            self.structure, [expand(*pair) for pair in zip(self.leaves, self.varies, strict=True)]
        )

    def tree_flatten(self) -> tuple[Any, Any]:
        arrays = [not is_static(x) for x in self.leaves]
        children = [x for x, is_array in zip(self.leaves, arrays, strict=True) if is_array]
        others = tuple(None if is_array else x for x, is_array in zip(self.leaves, arrays, strict=True))
        return (children, self.score), (tuple(arrays), others, self.varies, self.structure)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> "Values":
        arrays, others, varies, structure = static
        own, score = children
        remaining = iter(own)
        leaves = (next(remaining) if is_array else x for is_array, x in zip(arrays, others, strict=True))
        return cls(tuple(leaves), varies, structure, score)


def is_static(leaf: Any) -> bool:
    """Tell whether a leaf is no array and cannot become one."""
    return isinstance(leaf, str | bytes) or callable(leaf)


def dense(objects: Any) -> Any:
    """Return an array of Python objects as a tree of arrays where they are alike, and as it is where they are not."""
    items = list(objects)
    structures = {jax.tree.structure(x) for x in items}
    if len(structures) != 1:
        return objects
    columns = zip(*(jax.tree.leaves(x) for x in items), strict=True)
    try:
        return jax.tree.unflatten(structures.pop(), [np.stack([np.asarray(x) for x in column]) for column in columns])
    except ValueError:
        return objects
