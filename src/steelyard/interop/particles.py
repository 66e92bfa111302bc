"""Particles as arrays of NumPy, for libraries that know nothing of masks and trees."""

from typing import Any

import jax
import numpy as np

from steelyard.devices.hosts import is_spread
from steelyard.errors import ArgumentError
from steelyard.maps import Map
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import dense
from steelyard.types import is_traced


def check_population(out: Evaluation, place: str) -> None:
    """Raise `ArgumentError` unless the particles are known, are in this process, and are one population."""
    if is_spread(out.log_weight):
        raise ArgumentError(
            f"{place}: the particles are on devices of several processes. Bring all of them to each process first: "
            f"out = jax.tree.map(jnp.asarray, jax.experimental.multihost_utils.process_allgather(out, tiled=True)). "
            f"Every process must do that."
        )
    if any(map(is_traced, jax.tree.leaves((out.log_weight, out.trace, out.pointwise)))):
        raise ArgumentError(
            f"{place}: inside of jit, vmap or grad the particles are not known yet. Call it on what these return."
        )
    if out.log_weight.ndim != 1:
        raise ArgumentError(
            f"{place}: these are several populations, of weights with shape {out.log_weight.shape}. Take one of them: "
            f"jax.tree.map(lambda x: x[0], out)."
        )


def arrays(held: Map[Any], particles: int) -> dict[str, np.ndarray]:
    """Return what particles hold as one array for each leaf of each address, with the particle axis first.

    A number that a particle lacks is NaN. Values that are no numbers, or whose shapes differ, are objects; what a
    particle lacks is None then.
    """
    found: dict[str, np.ndarray] = {}
    for address in held:
        present = np.broadcast_to(np.asarray(held.present(address)), particles)
        there = jax.tree.map(lambda x: np.asarray(x)[present], held[address])  # noqa: B023
        if isinstance(there, np.ndarray) and there.dtype == object:
            there = dense(there)
        for path, leaf in jax.tree.leaves_with_path(there):
            found[f"{address}{jax.tree_util.keystr(path)}"] = _filled(np.asarray(leaf), present)
    return found


def _filled(there: np.ndarray, present: np.ndarray) -> np.ndarray:
    if present.all():
        return there
    is_number = np.issubdtype(there.dtype, np.number) or there.dtype == bool
    dtype, nothing = (np.result_type(there.dtype, np.float32), np.nan) if is_number else (object, None)
    every = np.full((len(present), *there.shape[1:]), nothing, dtype)
    every[present] = there
    return every
