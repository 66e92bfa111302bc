"""Which category lies at a position, when the probabilities lie end to end.

Few categories are compared with the position all at once, in one operation. Many are summed in blocks: a binary search
over the ends of the blocks finds one of them, and only its categories are looked at. Under `vmap`, probabilities that
all particles share are summed once. Where each particle has its own, only the ends of blocks are stored for each.
"""

from typing import Any

import jax
import jax.numpy as jnp

# Up to here a comparison with every category is faster than a search.
FEW = 32

# A table of the ends of blocks is smaller than the probabilities by this factor.
BLOCK = 8


def category_at(probabilities: Any, uniform: Any) -> Any:
    """Return the category at a fraction of the sum of all probabilities.

    A category of probability zero is never returned, unless the sum is zero or not finite: then it is the last one.

    Args:
        probabilities: the categories are the last axis.
        uniform: numbers in [0, 1), one for each row of probabilities.
    """
    size = probabilities.shape[-1]
    if size > FEW:
        return jnp.vectorize(_by_blocks, signature="(k),()->()")(probabilities, uniform)
    ends = _ends(probabilities)
    position = jnp.max(ends, axis=-1) * uniform
    return jnp.min(jnp.where(ends > position[..., None], jnp.arange(size), size - 1), axis=-1)


def _ends(masses: Any) -> Any:
    # A parallel prefix sum rises and falls by rounding, also where the mass is zero.
    return jnp.where(masses > 0, jnp.cumsum(masses, axis=-1), 0.0)


def _by_blocks(probabilities: Any, uniform: Any) -> Any:
    size = probabilities.shape[0]
    ends = jax.lax.cummax(_ends(_sums_of_blocks(probabilities)))
    position = ends[-1] * uniform
    block = jnp.minimum(jnp.searchsorted(ends, position, side="right"), ends.shape[0] - 1)
    # From the first of the block: next to the sum of all before it, small probabilities would lose their digits.
    rest, end = position - jnp.where(block > 0, ends[block - 1], 0.0), jnp.zeros_like(ends[0])
    category, found = jnp.asarray(size - 1), jnp.asarray(False)
    for index in (BLOCK * block + n for n in range(BLOCK)):
        mass = jnp.where(index < size, probabilities[jnp.minimum(index, size - 1)], 0.0)
        end += mass
        # Rounding may leave the position beyond the end of the block: then it is the last possible category.
        category = jnp.where((mass > 0) & ~found, index, category)
        found |= end > rest
    return jnp.where(position < ends[-1], category, size - 1).astype(int)


def _sums_of_blocks(probabilities: Any) -> Any:
    """Return the sum of every `BLOCK` neighbours, without a copy of the probabilities."""
    size = probabilities.shape[0]
    blocks = -(-size // BLOCK)
    columns = [jax.lax.slice_in_dim(probabilities, n, size, BLOCK) for n in range(BLOCK)]
    return sum(jnp.pad(column, (0, blocks - column.shape[0])) for column in columns)
