"""What was learned, in files: safetensors, half precision."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialized

import steelyard as sy
from steelyard.experiments.folders import write
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.settings import Method

# Where the parameters are that come with the package.
HERE = Path(__file__).parent / "parameters"


def path(method: Method, folder: Path = HERE) -> Path:
    """Return the file of a method."""
    return folder / f"{method}.safetensors"


def save(networks: Networks, file: Path, about: dict[str, Any]) -> Path:
    """Write networks to a file, with what is to be known about them."""
    arrays = {name: np.asarray(x, np.float16) for name, x in _named(networks).items()}
    return write(file, serialized(arrays, {"about": json.dumps(about)}))


def load(file: Path, canvas: int) -> Networks:
    """Read networks for frames of a size.

    Raises:
        CheckpointError: the file is not there, is damaged, or holds other networks.
    """
    networks = eqx.filter_eval_shape(Networks, jax.random.key(0), canvas)
    try:
        with safe_open(file, framework="numpy") as stored:
            found = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise sy.CheckpointError(
            f"{file} cannot be read ({error}). Train networks with `steelyard table2 train`."
        ) from error
    for name, x in _named(networks).items():
        if name not in found or found[name].shape != x.shape:
            raise sy.CheckpointError(f"{file} holds other networks: {name} is not an array of shape {x.shape} there.")
    arrays = iter([jnp.asarray(found[name], jnp.float32) for name in _named(networks)])
    return jax.tree.map(lambda x: next(arrays) if hasattr(x, "shape") else x, networks)


def _named(networks: Networks) -> dict[str, Any]:
    leaves = jax.tree.leaves_with_path(networks)
    return {jax.tree_util.keystr(place).lstrip("."): x for place, x in leaves if hasattr(x, "shape")}
