"""`load`: the models of a checkpoint, without the run that wrote it."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from steelyard.errors import CheckpointError
from steelyard.training.checkpoints import FORMAT, by_itself, checksum_of, name_of_array
from steelyard.training.identity import described
from steelyard.training.parameters import Trainable, partition

# A run that goes on removes its older checkpoints: one may vanish while it is read, but not so many.
ATTEMPTS = 5
# Of so many arrays that differ it tells.
MOST_ARRAYS = 3


class Stored(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        steps: how many steps were made.
        names: the names, types and shapes of the arrays that a step changes, in their order.
        arrays: these arrays and the history, by number.
    """

    steps: int
    names: list[str]
    arrays: dict[str, Any]


def load(checkpoint: str | PathLike[str], *, like: PyTree, trainable: Trainable = None) -> PyTree:
    """Return the models of the newest checkpoint in a directory that `train` wrote to.

    What was learned is taken from there; everything else, as functions, sizes and what does not learn, from `like`. The
    program, the data and the optimiser need not be there. Only arrays are read, and nothing is unpickled: a file from
    somebody else cannot run code. A run may go on meanwhile.

    Args:
        checkpoint: the directory.
        like: models of the same structure as those that were trained, as for `train`.
        trainable: the one that the run was started with.

    Returns:
        The models with the parameters that were learned.

    Raises:
        CheckpointError: there is no checkpoint; it is damaged; or names, shapes or types differ from those of `like`.

    Example:
        >>> import jax, optax, numpyro.distributions as dist, steelyard as sy, tempfile
        >>> def model(s): s.sample("z", dist.Normal(3.0, 1.0))
        >>> program = lambda m: sy.algorithms.svi(model, lambda s: s.sample("z", dist.Normal(m["mean"], 1.0)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = sy.train(program, {"mean": 0.0}, optimizer=optax.adam(0.1), steps=5, key=jax.random.key(0),
        ...                       particles=10, checkpoint=folder, progress=False)
        ...     again = sy.load(folder, like={"mean": 0.0})
        >>> bool(again["mean"] == result.models["mean"])
        True
    """
    directory = Path(checkpoint).absolute()
    parameters, static = partition(like, trainable)
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), parameters))
    wanted = [f".parameters{name}" for name in described(jax.tree.unflatten(structure, leaves))]
    stored = _read(directory)
    numbers = {name: i for i, name in enumerate(stored.names) if name.startswith(".parameters")}
    if differences := _differences(wanted, list(numbers)):
        raise CheckpointError(
            f"{directory} holds other models than `like`: {'; '.join(differences[:MOST_ARRAYS])}"
            f"{f'; and {len(differences) - MOST_ARRAYS} more' if len(differences) > MOST_ARRAYS else ''}. Make `like` "
            f"as the models of that run were made, with the `trainable` of the run, if there was one."
        )
    learned = [
        x if x.size == 0 else jnp.asarray(stored.arrays[name_of_array(numbers[name])])
        for name, x in zip(wanted, leaves, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(structure, learned), static)


def _read(directory: Path) -> Stored:
    """Return the newest checkpoint.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    # Slow to import, and needed by few.
    import orbax.checkpoint as ocp

    if not directory.is_dir():
        raise CheckpointError(f"{directory} is no directory. Give the one that train wrote to, as checkpoint=.")
    options = ocp.CheckpointManagerOptions(read_only=True, **by_itself())
    with ocp.CheckpointManager(directory, options=options) as manager:
        for _ in range(ATTEMPTS):
            manager.reload()
            steps = manager.latest_step()
            if steps is None:
                raise CheckpointError(f"{directory} holds no checkpoint of steelyard.train.")
            try:
                parts = ocp.args.Composite(identity=ocp.args.JsonRestore(), state=ocp.args.StandardRestore())
                found = manager.restore(steps, args=parts)
                identity, arrays = found["identity"], dict(found["state"])
            except Exception as error:
                if not (directory / str(steps)).exists():
                    continue
                raise _damaged(directory, steps) from error
            if not isinstance(identity, dict) or identity.get("format") != FORMAT:
                raise CheckpointError(
                    f"{directory}: the checkpoint of step {steps} was not written by this version of steelyard.train."
                )
            if identity.get("checksum") != checksum_of(steps, arrays):
                raise _damaged(directory, steps)
            return Stored(steps, list(identity["arrays"]), arrays)
    raise CheckpointError(f"{directory}: its checkpoints vanish while they are read. Try again when the run has ended.")


def _damaged(directory: Path, steps: int) -> CheckpointError:
    return CheckpointError(
        f"{directory}: the checkpoint of step {steps} is damaged. Remove the folder {steps} to load an older one."
    )


def _differences(wanted: list[str], stored: list[str]) -> list[str]:
    """Return in words how the arrays that are wanted differ from those that are stored, by name, type and shape."""
    ours, theirs = (dict(_parts(text) for text in texts) for texts in (wanted, stored))
    shown = {name: f"models{name.removeprefix('.parameters')}" for name in [*ours, *theirs]}
    other = [f"{shown[a]} is {theirs[a]} there, {ours[a]} in `like`" for a in ours if theirs.get(a, ours[a]) != ours[a]]
    lacks = [f"`like` has {shown[a]}, which was not learned there" for a in ours if a not in theirs]
    return other + lacks + [f"it has {shown[a]}, which `like` lacks" for a in theirs if a not in ours]


def _parts(text: str) -> tuple[str, str]:
    """Return the name of an array, which may hold spaces and brackets, and its type and shape."""
    first, _, shape = text.rpartition("[")
    name, _, dtype = first.rpartition(" ")
    return name, f"{dtype}[{shape}"
