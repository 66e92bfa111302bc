"""Checkpoints of a training run: written by Orbax, whole or not at all, and never over something else."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import CheckpointError

FORMAT = "steelyard training run, 1"


class Checkpoints:
    """The checkpoints of one run in one directory: the newest two, each named by the number of steps made."""

    def __init__(self, directory: str | PathLike[str], identity: dict[str, Any]) -> None:
        # Slow to import, and needed by few.
        import orbax.checkpoint as ocp

        self._ocp = ocp
        self._directory = Path(directory).absolute()
        self._identity = {"format": FORMAT, **identity}
        self._check_directory()
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(self._directory, options=options)

    def load(self, like: Callable[[int], Any]) -> Any | None:
        """Return the newest checkpoint; `like(steps)` has its structure and shapes. None, if there is none."""
        steps = self._manager.latest_step()
        if steps is None:
            return None
        ocp = self._ocp
        leaves, structure = jax.tree.flatten(like(steps))
        try:
            found = self._manager.restore(steps, args=ocp.args.Composite(identity=ocp.args.JsonRestore()))["identity"]
        except Exception as error:
            raise self._damaged(steps) from error
        if found != self._identity:
            raise self._foreign(_difference(found, self._identity))
        target = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in _pack(leaves).items()}
        try:
            args = ocp.args.Composite(state=ocp.args.StandardRestore(target))
            state = self._manager.restore(steps, args=args)["state"]
        except Exception as error:
            raise self._damaged(steps) from error
        return jax.tree.unflatten(structure, [_unpack(state, i, x) for i, x in enumerate(leaves)])

    def save(self, steps: int, state: Any) -> None:
        """Write a checkpoint; a run that is killed meanwhile leaves the one before it."""
        if self._manager.latest_step() == steps:
            return
        ocp = self._ocp
        leaves = ocp.args.StandardSave(_pack(jax.tree.leaves(state)))
        args = ocp.args.Composite(state=leaves, identity=ocp.args.JsonSave(self._identity))
        self._manager.save(steps, args=args)
        self._manager.wait_until_finished()

    def _check_directory(self) -> None:
        if not self._directory.exists():
            return
        if not self._directory.is_dir():
            raise self._foreign("it is a file")
        strange = sorted(p.name for p in self._directory.iterdir() if not p.name.split(".")[0].isdigit())
        if strange:
            raise self._foreign(f"it contains {strange[0]!r}")

    def _damaged(self, steps: int) -> CheckpointError:
        return CheckpointError(
            f"{self._directory}: the checkpoint of step {steps} is damaged, and was left as it is. Remove the folder "
            f"{steps} to go on from an older checkpoint, or choose another directory."
        )

    def _foreign(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"{self._directory} does not hold checkpoints of this run: {why}. It was left as it is. Choose another "
            f"directory, or start with the arguments of the run that made it."
        )


def _name(index: int) -> str:
    return f"{index:05d}"


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _pack(leaves: list[Any]) -> dict[str, np.ndarray]:
    """Return the arrays to write: of keys their data, and nothing of empty arrays, which Orbax refuses."""
    arrays = {_name(i): np.asarray(jax.random.key_data(x) if _is_key(x) else x) for i, x in enumerate(leaves)}
    return {name: x for name, x in arrays.items() if x.size}


def _unpack(state: dict[str, Any], index: int, like: Any) -> Any:
    if np.size(like) == 0:
        return like
    data = jnp.asarray(state[_name(index)])
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(like)) if _is_key(like) else data


def _difference(found: Any, expected: dict[str, Any]) -> str:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return "it was not written by steelyard.train"
    names = [name for name in expected if found.get(name) != expected[name]]
    if names == ["arrays"]:
        before, now = found["arrays"], expected["arrays"]
        first = next((f"{a}, now {b}" for a, b in zip(before, now, strict=False) if a != b), f"{len(before)} arrays")
        return f"the parameters or the optimiser have other shapes ({first})"
    return "; ".join(f"{name} was {found.get(name)}, now {expected[name]}" for name in names if name != "arrays")
