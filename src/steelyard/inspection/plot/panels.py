"""Weighted particles: histograms, bars and points."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from steelyard.errors import AddressError, ArgumentError, WeightError
from steelyard.inspection.plot.axes import axes_for, plain
from steelyard.inspection.trouble import explained
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

BINS = 40
MOST_TICKS = 10
# The area of the heaviest particle, in points.
LARGEST_AREA = 60.0


def particles(out: Evaluation, *addresses: str, pairs: bool = False, components: int = 3, axes: Any = None) -> Any:
    """Draw the weighted particles: a histogram of each variable, bars where it is discrete.

    A variable that some particles lack is drawn for those that have it; the title tells their share of the weight.

    Args:
        out: an evaluation of one population.
        *addresses: which variables; all of them, if there is none.
        pairs: draw each two as points as well, whose areas are the weights.
        components: how many components of a vector or array, the first ones.
        axes: axes to draw on, as many as are needed; new ones, if None.

    Returns:
        An array of axes, one for each component; with pairs, a square of them.

    Raises:
        AddressError: there is no such variable.
        ArgumentError: it is a batch, or not known yet, or no numbers; or there are too few axes.
        WeightError: the weights carry no information.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0)), s.sample("k", dist.Poisson(3.0))
        >>> out = sy.evaluate(model, jax.random.key(0), particles=100)
        >>> [ax.get_xlabel() for ax in sy.plot.particles(out)]
        ['k', 'z']
    """
    columns = columns_of(out, addresses, components)
    count = len(columns)
    grid = axes_for(count, axes, "particles", square=pairs)
    if not pairs:
        for ax, column in zip(grid, columns, strict=True):
            _histogram(ax, column)
        return grid
    grid = grid.reshape(count, count)
    for i, below in enumerate(columns):
        _histogram(grid[i, i], below)
        for j, left in enumerate(columns):
            if j < i:
                _scatter(grid[i, j], left, below)
            elif j > i:
                grid[i, j].set_axis_off()
    return grid


@dataclass(frozen=True)
class Column:
    """One number of each particle: its name, the values, the weights, and which particles have it."""

    name: str
    values: np.ndarray
    weights: np.ndarray
    present: np.ndarray

    @property
    def drawn(self) -> np.ndarray:
        """Which particles are drawn: those that have it, with a weight and a finite value."""
        return self.present & np.isfinite(self.values) & (self.weights > 0)

    @property
    def discrete(self) -> bool:
        """Whether these are whole numbers."""
        return not np.issubdtype(self.values.dtype, np.floating)

    @property
    def title(self) -> str:
        """What is to be said of particles that are not drawn."""
        share = self.weights[self.present].sum()
        infinite = int((self.present & ~np.isfinite(self.values)).sum())
        parts = [] if self.present.all() else [f"present: {share:.0%} of the weight"]
        return ", ".join([*parts, *([f"{infinite} not finite"] if infinite else [])])


def columns_of(out: Evaluation, addresses: Iterable[str], components: int) -> list[Column]:
    """Return the numbers that particles hold at these addresses, of each array the first few; at all, if none is given.

    Raises:
        AddressError, ArgumentError, WeightError: as `particles`.
    """
    if is_traced(out.log_weight) or np.ndim(out.log_weight) != 1:
        raise ArgumentError("plot.particles draws one population: call it outside of jit, and for one run of a batch.")
    if problem := explained(out):
        raise WeightError(f"plot.particles: {problem}")
    weights = np.asarray(out.normalized_weights, float)
    found = []
    for a in tuple(addresses) or tuple(out.trace):
        if a not in out.trace:
            raise AddressError(
                f"plot.particles: no variable at {a!r}; there are {', '.join(map(repr, out.trace)) or 'none'}."
            )
        present = np.broadcast_to(np.asarray(out.trace.present(a)), weights.shape)
        for path, leaf in jax.tree_util.tree_flatten_with_path(_filled(out.trace[a], present))[0]:
            found += _components(a + jax.tree_util.keystr(path), leaf, components, weights, present)
    if not found:
        raise ArgumentError("plot.particles: there is no variable to draw.")
    return found


def _filled(value: Any, present: np.ndarray) -> Any:
    """Return what the universal engine holds as objects, where some particles lack it, as an array with zeros there."""
    if getattr(value, "dtype", None) != np.dtype(object):
        return value
    items = [np.asarray(x) for x in value[present]]
    if len({(x.shape, x.dtype) for x in items}) != 1:
        return value
    array = np.zeros((len(present), *items[0].shape), items[0].dtype)
    array[present] = np.stack(items)
    return array


def _components(name: str, leaf: Any, most: int, weights: np.ndarray, present: np.ndarray) -> list[Column]:
    dtype = getattr(leaf, "dtype", np.dtype(object))
    if not any(jax.numpy.issubdtype(dtype, kind) for kind in (np.floating, np.integer, np.bool_)):
        raise ArgumentError(f"plot.particles draws real numbers, and {name!r} holds {dtype}. Name others.")
    array = np.asarray(leaf)
    # Also of the short floats that NumPy does not know.
    array = array.astype(float) if jax.numpy.issubdtype(dtype, np.floating) else array.astype(int)
    indices = list(np.ndindex(array.shape[1:]))[:most]
    names = [f"{name}[{', '.join(map(str, i))}]" if i else name for i in indices]
    return [Column(n, array[(slice(None), *i)], weights, present) for n, i in zip(names, indices, strict=True)]


def _histogram(ax: Any, column: Column) -> None:
    values, weights = column.values[column.drawn], column.weights[column.drawn]
    ax.set_xlabel(plain(column.name))
    ax.set_title(column.title, fontsize="small")
    if not len(values):
        ax.text(0.5, 0.5, "no particle", ha="center", transform=ax.transAxes)
        return
    weights = weights / weights.sum()
    if column.discrete:
        places, which = np.unique(values, return_inverse=True)
        ax.bar(places, np.bincount(which, weights), width=0.8)
        ax.set_ylabel("probability")
        if len(places) <= MOST_TICKS:
            ax.set_xticks(places)
        return
    low, high = values.min(), values.max()
    if high - low > BINS * np.spacing(max(abs(low), abs(high))):
        ax.hist(values, bins=BINS, weights=weights, density=True)
        ax.set_ylabel("density")
    else:
        # Bins would be narrower than what numbers of this size can tell apart.
        ax.bar([low], [1.0], width=max(abs(low) / 100, np.finfo(float).tiny))
        ax.set_ylabel("probability")


def _scatter(ax: Any, left: Column, below: Column) -> None:
    drawn = left.drawn & below.drawn
    weights = left.weights[drawn]
    if len(weights):
        areas = LARGEST_AREA * weights / weights.max()
        ax.scatter(left.values[drawn], below.values[drawn], s=areas, alpha=0.5, linewidths=0)
    ax.set_xlabel(plain(left.name))
    ax.set_ylabel(plain(below.name))
