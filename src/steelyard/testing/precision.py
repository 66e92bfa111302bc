"""Programs in double precision: what was made before it was switched on is converted."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.language.programs import Program, Scan, parts

WIDER: dict[Any, Any] = {np.dtype(np.float32): np.float64, np.dtype(np.int32): np.int64}


def in_double_precision(q: Program) -> Program:
    """Return the program whose scans have arrays of 64 bits, inside of `jax.enable_x64`.

    A loop needs the same types before and after a step; and what is checked to 1e-9 cannot be computed in 32 bits.
    """
    changed: dict[str, Any] = {name: new for name, part in parts(q) if (new := in_double_precision(part)) is not part}
    if isinstance(q, Scan):
        changed["xs"] = doubled(q.xs)
    return replace(q, **changed) if changed else q


def doubled(tree: Any) -> Any:
    """Return the tree with arrays of 64 bits."""

    def convert(x: Any) -> Any:
        if isinstance(x, np.ndarray | jax.Array) and x.dtype in WIDER:
            return jnp.asarray(x, WIDER[x.dtype])
        return x

    return jax.tree.map(convert, tree)
