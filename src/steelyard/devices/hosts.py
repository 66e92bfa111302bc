"""Arrays on devices of several processes, none of which has all of an array."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

from steelyard.types import is_traced


def is_spread(x: Any) -> bool:
    """Tell whether parts of an array are in other processes only."""
    known = isinstance(x, jax.Array) and not is_traced(x)
    return known and not (x.is_fully_addressable or x.is_fully_replicated)


def on_this_host(tree: Any) -> Any:
    """Return arrays that this process has all of. They are sent to every process, and every process must ask."""

    def gathered(x: Any) -> Any:
        if not is_spread(x):
            return x
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(gathered(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        return jnp.asarray(multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(gathered, tree)
