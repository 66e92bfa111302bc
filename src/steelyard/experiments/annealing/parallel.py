"""Seeds side by side: each core has a share of them."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

OPTIONS = {
    # Each device has a core of its own: threads for single operations would only get in each other's way.
    "xla_cpu_multi_thread_eigen": False,
    # A library is faster for products of matrices, but slower for sums as short as the gradients of biases.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}


def known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of the compiler that its version has: experimental ones come and go."""
    found = {}
    for name, value in options.items():
        with suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
            found[name] = value
    return found


@cache
def _options() -> dict[str, Any]:
    return known(OPTIONS)


def over_seeds(f: Callable[..., Any], seeds: int) -> Callable[..., Any]:
    """Run a function for every seed, in one compiled program that is spread over the CPU devices.

    Args:
        f: a function of `x, *shared`.
        seeds: how many seeds; they are shared out evenly, to as many devices as that allows.

    Returns:
        A compiled function of `xs, *shared`, where `xs` is stacked along its first axis, and so is the result.
    """
    devices = jax.devices("cpu")
    count = max(n for n in range(1, len(devices) + 1) if seeds % n == 0)
    mesh = Mesh(np.array(devices[:count]), ("seeds",))

    def share(xs: Any, shared: Any) -> Any:
        return jax.vmap(lambda x: f(x, *shared))(xs)

    split, whole = PartitionSpec("seeds"), PartitionSpec()
    # The check is of communication between devices, and there is none.
    spread = jax.shard_map(share, mesh=mesh, in_specs=(split, whole), out_specs=split, check_vma=False)
    compiled = jax.jit(spread, compiler_options=_options())

    def call(xs: Any, *shared: Any) -> Any:
        # Where arrays are is a part of their type: those that come from elsewhere would be compiled for once more.
        return compiled(*jax.device_put((xs, shared), (NamedSharding(mesh, split), NamedSharding(mesh, whole))))

    return call
