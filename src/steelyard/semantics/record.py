"""The record of a sampler, for people: what happened at each of its levels, and which particles descend from which."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from steelyard.ancestors import composed
from steelyard.estimates.ancestry import Kept
from steelyard.estimates.smoothing import Transitions
from steelyard.maps import Map
from steelyard.particles import resampling, weights
from steelyard.types import Ancestors, LogWeights, Scalar, is_traced


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LevelSummary:
    """What a person needs to see of one propose or resample to find where a sampler degenerates.

    Attributes:
        label: the combinator and its target.
        log_z_increment: how much the estimate of log Z changed.
        ess: the effective sample size of the outgoing weights; of a resample, of those that it found.
        max_weight: the largest normalised weight, of the same weights.
        ancestors: how many distinct particles were kept; all of them, where nothing was resampled.
        loss: what the objective gave here; zero without one.
        acceptance: of a Markov kernel, how often it moved a particle: the average of the acceptance probabilities, by
            weight, over particles and steps; else None.
        jump: of a Markov kernel, the average squared distance between the places of a particle before and after; else
            None.
        resampled: 1 where particles were drawn again, else 0; with a threshold that depends on the weights.
        method: of a resample, its method; else empty.
        used: of an adaptive schedule under `jit`, where there is room for more steps than it takes, which of them
            there were; else None. Its axes are the first ones of the other numbers.

    Example:
        >>> import jax, steelyard as sy
        >>> def q(s): s.factor("score", 0.5)
        >>> [level.label for level in sy.evaluate(sy.resample(q), jax.random.key(0), particles=3).levels]
        ['resample']
    """

    label: str = field(metadata={"static": True})
    log_z_increment: Scalar
    ess: Scalar
    max_weight: Scalar
    ancestors: Any
    loss: Any = 0.0
    acceptance: Any = None
    jump: Any = None
    resampled: Any = 0
    method: str = field(default="", metadata={"static": True})
    used: Any = None

    @classmethod
    def of(
        cls, label: str, log_weight: LogWeights, increment: Any = None, *, ancestors: Any = None, loss: Any = 0.0
    ) -> "LevelSummary":
        """Summarise a step to these weights, which changed log Z by an increment; not at all, if None."""
        if increment is None:
            xp = log_weight.__array_namespace__()
            increment = xp.where(xp.isfinite(weights.log_mean(log_weight)), 0.0, xp.nan)
        kept = log_weight.shape[-1] if ancestors is None else resampling.distinct(ancestors)
        ess, largest = weights.effective_sample_size(log_weight), weights.normalize(log_weight).max(axis=-1)
        return cls(label, increment, ess, largest, kept, loss)


def used_steps(level: LevelSummary, shape: tuple[int, ...]) -> np.ndarray:
    """Return which steps of a level there were, for numbers of this shape; all of them, where it is not known yet."""
    if level.used is None or is_traced(level.used):
        return np.ones(shape, bool)
    used = np.asarray(level.used)
    return np.broadcast_to(used.reshape(used.shape + (1,) * (len(shape) - used.ndim)), shape)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observed:
    """What was observed at an address, and whether that is the same value in all particles that observed there."""

    value: Any
    is_shared: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Record:
    """What people look at of how particles came about. The attributes are those of `Evaluation`."""

    levels: tuple[LevelSummary, ...] = ()
    ancestors: Ancestors | None = None
    loss: Any = 0.0
    histories: tuple[Kept, ...] = ()
    # What an adaptive schedule chose, step by step.
    found: Any = None
    # For each observed address the terms that its log density is the sum of, if they were asked for.
    pointwise: Map[Any] = Map()
    # Whether these particles were drawn from those of a run, which the ancestors are then the numbers of.
    redrawn: bool = field(default=False, metadata={"static": True})
    # How a filter goes from one step to the next, if that was asked for.
    transitions: Transitions | None = None
    # With densities by observation, what was observed. There is no particle axis.
    observed: Map[Observed] = Map()

    def then(self, after: "Record") -> "Record":
        """Return the record of two programs one after the other; the ancestors of the second are in the first's."""
        return Record(
            self.levels + after.levels,
            self.ancestors,
            self.loss + after.loss,
            # Weights of the second program do not have those of the first in them.
            self.histories + tuple(replace(history, complete=False) for history in after.histories),
            self.found or after.found,
            after.pointwise | self.pointwise,
        )

    def with_level(self, level: LevelSummary) -> "Record":
        """Return the record with one more level."""
        return replace(self, levels=(*self.levels, level), loss=self.loss + level.loss)

    def reindex(self, ancestors: Ancestors) -> "Record":
        """Return the record of particles that were resampled."""
        return replace(
            self,
            ancestors=ancestors if self.ancestors is None else composed(self.ancestors, ancestors),
            histories=tuple(history.reindex(ancestors) for history in self.histories),
            pointwise=self.pointwise.reindex(ancestors),
        )

    def rename(self, new: Callable[[str], str]) -> "Record":
        """Return the record under other addresses."""
        histories = tuple(history.rename(new) for history in self.histories)
        renamed = {"pointwise": self.pointwise.rename(new), "observed": self.observed.rename(new)}
        return replace(self, histories=histories, transitions=None, **renamed)
