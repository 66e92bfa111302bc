"""The history of particles: what a scan keeps of each step, and whose descendants the last particles are."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from steelyard.maps import take


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kept:
    """The values of some variables at each step of a scan, and the ancestors that connect them."""

    first: dict[str, Any]
    values: dict[str, Any]
    ancestors: Any
    last: Any

    def reindex(self, ancestors: Any) -> "Kept":
        """Return the same values, as seen from particles that were resampled afterwards."""
        return replace(self, last=take(self.last, ancestors))

    def trajectories(self) -> dict[str, Any]:
        """Follow the ancestors back from the last step to the first."""

        def back(index: Any, step: Any) -> Any:
            ancestors, now = step
            return take(ancestors, index), take(now, index)

        steps = self.ancestors, self.values
        if isinstance(self.last, np.ndarray):
            index, columns = self.last, []
            for number in reversed(range(len(self.ancestors))):
                index, now = back(index, jax.tree.map(lambda x: x[number], steps))  # noqa: B023
                columns.append(now)
            history = jax.tree.map(lambda *xs: np.stack(xs[::-1]), *columns)
        else:
            index, history = jax.lax.scan(back, self.last, steps, reverse=True)
        xp = self.last.__array_namespace__()
        return jax.tree.map(
            lambda x0, xs: xp.moveaxis(xp.concatenate([x0[None], xs]), 0, 1), take(self.first, index), history
        )
