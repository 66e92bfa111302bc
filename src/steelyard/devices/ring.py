"""Particles that go on to the next island, along a ring: the first so many of each island; all others stay."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh

from steelyard.devices.layout import AXIS, SPLIT, apart_on_devices


def along_ring(particles: int, islands: int, count: int) -> np.ndarray:
    """Return for each particle where it comes from.

    Example:
        >>> from steelyard.devices.ring import along_ring
        >>> along_ring(6, islands=2, count=1)
        array([3, 1, 2, 0, 4, 5])
    """
    numbers = np.arange(particles).reshape(islands, -1)
    numbers[:, :count] = np.roll(numbers[:, :count], 1, axis=0)
    return numbers.ravel()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ring:
    """The same on several devices, of which each has some islands, and sends particles of its last one to the next.

    Attributes:
        islands: how many islands a device has.
        count: how many particles of each go on.
        mesh: the devices.
    """

    islands: int = field(metadata={"static": True})
    count: int = field(metadata={"static": True})
    mesh: AbstractMesh = field(metadata={"static": True})

    def take(self, x: Any) -> Any:
        """Return the array in which each particle holds what the one before it held."""
        devices = self.mesh.shape[AXIS]
        pairs = [(d, (d + 1) % devices) for d in range(devices)]

        def local(x: Any) -> Any:
            rows = x.reshape(self.islands, -1, *x.shape[1:])
            go = rows[:, : self.count]
            come = jnp.concatenate([jax.lax.ppermute(go[-1:], AXIS, pairs), go[:-1]])
            return jnp.concatenate([come, rows[:, self.count :]], axis=1).reshape(x.shape)

        return apart_on_devices(local, SPLIT, SPLIT, self.mesh)(x)
