"""The history of particles: what a scan keeps of each step, and whose descendants the last particles are."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from steelyard.arrays.manual_axes import varying_like_results
from steelyard.maps import take


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kept:
    """The values of some variables at each step of a scan, and the ancestors that connect them.

    Attributes:
        first: by address, the values before the first step.
        values: by address, the values after each step.
        first_log_weight: the log weights before the first step.
        log_weight: the log weights after each step.
        ancestors: for each step and particle, the particle of the step before that it descends from.
        last: for each particle of the evaluation, the particle of the last step that it descends from.
        complete: whether the weights are all that the particles had. The second part of a compose does not see those
            of the first.
    """

    first: dict[str, Any]
    values: dict[str, Any]
    first_log_weight: Any
    log_weight: Any
    ancestors: Any
    last: Any
    complete: bool = field(default=True, metadata={"static": True})

    def reindex(self, ancestors: Any) -> "Kept":
        """Return the same values, as seen from particles that were resampled afterwards."""
        return replace(self, last=take(self.last, ancestors))

    def rename(self, new: Callable[[str], str]) -> "Kept":
        """Return the same history under other addresses."""
        first, values = ({new(a): v for a, v in m.items()} for m in (self.first, self.values))
        return replace(self, first=first, values=values)

    def trajectories(self) -> dict[str, Any]:
        """Follow the ancestors back from the last step to the first."""

        def back(index: Any, step: Any) -> Any:
            ancestors, now = step
            return take(ancestors, index), take(now, index)

        steps = self.ancestors, self.values
        if isinstance(self.last, np.ndarray) and len(self.ancestors):
            index, columns = self.last, []
            for number in reversed(range(len(self.ancestors))):
                index, now = back(index, jax.tree.map(lambda x: x[number], steps))  # noqa: B023
                columns.append(now)
            history = jax.tree.map(lambda *xs: np.stack(xs[::-1]), *columns)
        else:
            last = varying_like_results(lambda index: back(index, jax.tree.map(lambda x: x[0], steps))[0], self.last)
            index, history = jax.lax.scan(back, last, steps, reverse=True)
        xp = self.last.__array_namespace__()
        return jax.tree.map(
            lambda x0, xs: xp.moveaxis(xp.concatenate([x0[None], xs]), 0, 1), take(self.first, index), history
        )


def trajectories(kept: tuple[Kept, ...]) -> dict[str, Any]:
    """Return the histories of several scans, in the order in which they ran."""
    found: dict[str, Any] = {}
    for history in kept:
        for a, values in history.trajectories().items():
            if a in found:
                # A scan over a scan begins where that one ended.
                values = jax.tree.map(lambda x, y: _concatenate([x, y[:, 1:]], axis=1), found[a], values)
            found[a] = values
    return found


def _concatenate(arrays: list[Any], axis: int) -> Any:
    return arrays[0].__array_namespace__().concatenate(arrays, axis=axis)
