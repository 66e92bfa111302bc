"""The cores of the machine: a device for each, and how to compile for them."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

OPTIONS = {
    # Each device has a core of its own: threads for single operations would only get in each other's way.
    "xla_cpu_multi_thread_eigen": False,
    # A library is faster for products of matrices, but slower for sums as short as the gradients of biases.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}


def mesh_of(seeds: int) -> Mesh:
    """Return as many CPU devices as so many seeds can be shared out to evenly."""
    devices = jax.devices("cpu")
    count = max(n for n in range(1, len(devices) + 1) if seeds % n == 0)
    return Mesh(np.array(devices[:count]), ("seeds",))


def known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of the compiler that its version has: experimental ones come and go."""
    found = {}
    for name, value in options.items():
        with suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
            found[name] = value
    return found


@cache
def options() -> dict[str, Any]:
    """Return how to compile what runs for long."""
    return known(OPTIONS)
