"""Several processes that train together: all must make the same steps, and only the first writes and tells.

How many steps are made at once, when a checkpoint is due and whether to stop depends on clocks and on callbacks, which
differ from process to process. So the processes agree on it: the first decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from steelyard.devices.hosts import on_this_host
from steelyard.errors import ArgumentError, CheckpointError


@dataclass(frozen=True)
class Processes:
    """Those that train together; if it is one alone, it agrees with itself, and nothing is sent."""

    several: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this is the one that decides and writes."""
        return not self.several or jax.process_index() == 0

    def first_says(self, *numbers: int) -> tuple[int, ...]:
        """Return the numbers of the first process."""
        return tuple(map(int, self._gathered(numbers)[0])) if self.several else numbers

    def any_says(self, flag: bool) -> bool:
        """Tell whether some process says so."""
        return bool(self._gathered([flag]).any()) if self.several else flag

    def first_does(self, f: Callable[[], Any]) -> Any:
        """Return what f returns in the first process; None in all others.

        Raises:
            CheckpointError: f raised it; then in all processes.
        """
        if not self.several:
            return f()
        found, error = None, None
        if self.is_first:
            try:
                found = f()
            except CheckpointError as raised:
                error = raised
        # All wait here until it is done, and hear what went wrong.
        message = self.bytes_of_first(b"" if error is None else str(error).encode())
        if message:
            raise CheckpointError(message.decode()) from error
        return found

    def bytes_of_first(self, content: bytes) -> bytes:
        """Return what the first process has."""
        (size,) = self.first_says(len(content))
        room = np.zeros(size, np.uint8)
        if self.is_first:
            room[:] = np.frombuffer(content, np.uint8)
        return np.asarray(multihost_utils.broadcast_one_to_all(room), np.uint8).tobytes() if size else b""

    def arrays_of_first(self, tree: Any) -> Any:
        """Return the arrays of the first process, bit for bit; others have arrays of the same shapes."""
        if not self.several:
            return tree

        def of_first(x: Any) -> Any:
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(of_first(jax.random.key_data(x)), impl=jax.random.key_impl(x))
            # As bytes: they are added up on the way, and -0.0 + 0.0 is another number.
            whole = np.asarray(x)
            return jnp.asarray(np.frombuffer(self.bytes_of_first(whole.tobytes()), whole.dtype).reshape(whole.shape))

        return jax.tree.map(of_first, tree)

    def whole(self, tree: Any) -> Any:
        """Return arrays that every process has all of, from such that lie on devices of several."""
        return on_this_host(tree) if self.several else tree

    def _gathered(self, numbers: Any) -> np.ndarray:
        return np.asarray(multihost_utils.process_allgather(np.asarray(numbers, np.int32)))


def processes_of(mesh: Mesh | None, place: str) -> Processes:
    """Return the processes whose devices a mesh has.

    Raises:
        ArgumentError: it has devices of several, but not of all.
    """
    found = set() if mesh is None else {device.process_index for device in mesh.devices.flat}
    if not found - {jax.process_index()}:
        return Processes()
    if len(found) < jax.process_count():
        raise ArgumentError(
            f"{place}: the mesh has devices of {len(found)} of {jax.process_count()} processes. Use those of all, "
            f"jax.devices(), or those of this one, jax.local_devices()."
        )
    return Processes(several=True)
