"""Checkpoints of a training run: written by Orbax, whole or not at all, and never over something else."""

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import CheckpointError
from steelyard.training import lock
from steelyard.training.identity import difference, digest_of_arrays
from steelyard.training.lock import Busy, locked

FORMAT, OLDER = "steelyard training run, 2", "steelyard training run, 1"
# What a checkpoint consists of, and the names of those that were never finished.
PARTS = {"_CHECKPOINT_METADATA", "commit_success.txt", "identity", "state"}
UNFINISHED = re.compile(r"\d+\.orbax-checkpoint-tmp.*")


class Checkpoints:
    """The checkpoints of one run in one directory: the newest two, each named by the number of steps made."""

    def __init__(self, directory: str | PathLike[str], identity: dict[str, Any]) -> None:
        # Slow to import, and needed by few.
        import orbax.checkpoint as ocp

        self._ocp = ocp
        self._directory = Path(directory).absolute()
        self._identity = {"format": FORMAT, **identity}
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False, **by_itself())
        self._manager = ocp.CheckpointManager(self._directory, options=options)

    @classmethod
    @contextmanager
    def opened(cls, directory: str | PathLike[str], identity: dict[str, Any]) -> Iterator["Checkpoints"]:
        """Hold the directory for one run, which nobody else may use meanwhile."""
        path = Path(directory).absolute()
        with ExitStack() as stack:
            try:
                _check_name(path)
                _check_directory(path)
                path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(path))
                store = cls(path, identity)
            except Busy as error:
                raise CheckpointError(
                    f"{path} is in use by another run ({error}). Wait until it has ended, or choose another directory."
                ) from error
            except CheckpointError:
                raise
            except OSError as error:
                raise CheckpointError(f"{path} cannot be written ({error}). Choose another directory.") from error
            yield store

    def load(self, like: Callable[[int], Any], most: int | None = None) -> Any | None:
        """Return the newest checkpoint, or None, if there is none.

        `like(steps)` has its structure and shapes; it is refused if it is further than `most` steps.
        """
        steps = self._manager.latest_step()
        if steps is None:
            return None
        ocp = self._ocp
        leaves, structure = jax.tree.flatten(like(steps))
        try:
            found = self._manager.restore(steps, args=ocp.args.Composite(identity=ocp.args.JsonRestore()))["identity"]
        except Exception as error:
            raise self._damaged(steps) from error
        checksum = found.pop("checksum", None) if isinstance(found, dict) else None
        if why := _difference(found, self._identity):
            raise _foreign(self._directory, why)
        if most is not None and steps > most:
            raise _foreign(self._directory, f"it was trained up to step {steps}, now only {most} steps are asked for")
        target = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in _pack(leaves).items()}
        try:
            args = ocp.args.Composite(state=ocp.args.StandardRestore(target))
            state = self._manager.restore(steps, args=args)["state"]
        except Exception as error:
            raise self._damaged(steps) from error
        if checksum != checksum_of(steps, state):
            raise self._damaged(steps)
        return jax.tree.unflatten(structure, [_unpack(state, i, x) for i, x in enumerate(leaves)])

    def save(self, steps: int, state: Any) -> None:
        """Write a checkpoint; a run that is killed meanwhile leaves the one before it, and Ctrl-C waits."""
        if self._manager.latest_step() == steps:
            return
        ocp = self._ocp
        with _ctrl_c_waits():
            try:
                for path in self._directory.iterdir():
                    if UNFINISHED.fullmatch(path.name):
                        shutil.rmtree(path)
                arrays = _pack(jax.tree.leaves(state))
                identity = {**self._identity, "checksum": checksum_of(steps, arrays)}
                leaves = ocp.args.StandardSave(arrays)
                self._manager.save(steps, args=ocp.args.Composite(state=leaves, identity=ocp.args.JsonSave(identity)))
                self._manager.wait_until_finished()
            except Exception as error:
                raise CheckpointError(
                    f"{self._directory}: the checkpoint of step {steps} could not be written ({error}). Those before "
                    f"it are whole. Make room, or see to the permissions, and start again: the run goes on from there."
                ) from error

    def _damaged(self, steps: int) -> CheckpointError:
        return CheckpointError(
            f"{self._directory}: the checkpoint of step {steps} is damaged, and was left as it is. Remove the folder "
            f"{steps} to go on from an older checkpoint, or choose another directory."
        )


def _foreign(directory: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{directory} does not hold checkpoints of this run: {why}. It was left as it is. Choose another directory, or "
        f"start with the arguments of the run that made it."
    )


def _check_name(directory: Path) -> None:
    """Raise `CheckpointError` for names that Orbax takes for patterns: it would lose what it writes there, or fail."""
    name = str(directory)
    special = sorted(set("*?[]") & set(name)) + (["\\"] if os.sep == "/" and "\\" in name else [])
    special += [c for c in name if "\ud800" <= c <= "\udfff"]
    if special:
        raise CheckpointError(
            f"{directory} cannot hold checkpoints: its path contains {ascii(special[0])}. Choose another directory, "
            f"or a symbolic link to this one."
        )


def _check_directory(directory: Path) -> None:
    """Raise `CheckpointError` if there is something that no run has written."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise _foreign(directory, "it is a file")
    strange = sorted(path.name for path in directory.iterdir() if not _is_ours(path))
    if strange:
        raise _foreign(directory, f"it contains {strange[0]!r}")


def _is_ours(path: Path) -> bool:
    """Tell whether something was written by `Checkpoints`, be it whole or not, or half removed."""
    if path.name == lock.NAME or UNFINISHED.fullmatch(path.name):
        return True
    try:
        parts = {part.name for part in path.iterdir()}
    except FileNotFoundError:
        # Another run has just removed it.
        return True
    except NotADirectoryError:
        return False
    return re.fullmatch(r"\d+", path.name) is not None and ("identity" in parts or parts <= PARTS)


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Hold Ctrl-C back until the end. Python handles it in the main thread alone: elsewhere it cannot come."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def by_itself() -> dict[str, Any]:
    """Return the options with which Orbax does not wait for other processes: only one reads or writes."""
    if jax.process_count() == 1:
        return {}
    # Slow to import, and needed by few.
    import orbax.checkpoint as ocp

    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"steelyard-{me}"
    )
    return {"multiprocessing_options": alone, "create": False}


def checksum_of(steps: int, arrays: dict[str, Any]) -> str:
    """Return a hash of all that a checkpoint holds."""
    return digest_of_arrays({"steps": np.asarray(steps), **arrays})


def name_of_array(index: int) -> str:
    """Return the name that an array has in a checkpoint."""
    return f"{index:05d}"


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _pack(leaves: list[Any]) -> dict[str, np.ndarray]:
    """Return the arrays to write: of keys their data, and nothing of empty arrays, which Orbax refuses."""
    arrays = {name_of_array(i): np.asarray(jax.random.key_data(x) if _is_key(x) else x) for i, x in enumerate(leaves)}
    return {name: x for name, x in arrays.items() if x.size}


def _unpack(state: dict[str, Any], index: int, like: Any) -> Any:
    if np.size(like) == 0:
        return like
    data = jnp.asarray(state[name_of_array(index)])
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(like)) if _is_key(like) else data


def _difference(found: Any, expected: dict[str, Any]) -> str:
    """Return in words why a checkpoint is not of this run; the empty string, if it is."""
    form = found.get("format") if isinstance(found, dict) else None
    if form == OLDER:
        return "it was written by an earlier version of steelyard, which did not record what the run depends on"
    return difference(found, expected) if form == FORMAT else "it was not written by steelyard.train"
