"""Log densities that are computed for many particles at once, when somebody asks for one of them.

A program draws with what it computed, but it never sees a density. Densities of the same kind therefore wait, and all
that wait are computed in one call. Of the time of a particle with three variables, densities one by one were half.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from steelyard.engines.compiled import Taking, is_numeric
from steelyard.types import is_traced

# So many are computed in one call, however many wait: it is compiled once for a kind of distribution.
BLOCK = 64


class Deferred:
    """A number that is computed when it is asked for; what is added to it, or multiplied with it, can wait as well."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self.value = value

    def __add__(self, other: Any) -> "Deferred":
        return Deferred(lambda: self.value() + _value(other))

    def __mul__(self, other: Any) -> "Deferred":
        return Deferred(lambda: self.value() * _value(other))

    def __float__(self) -> float:
        return float(self.value())


def _value(x: Any) -> Any:
    return x.value() if isinstance(x, Deferred) else x


@dataclass
class Waiting:
    """Densities of one kind: the values and parameters of those that wait, and the results of those that did."""

    rows: list[list[Any]] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


class DeferredDensities:
    """Computes densities of one level, for many particles at once."""

    def __init__(self, taking: Taking) -> None:
        self._taking = taking
        self._waiting: dict[Hashable, Waiting] = {}

    def __call__(self, log_prob: Callable[[Any, Any], Any], distribution: Any, value: Any) -> Any:
        parts = self._taking.apart(distribution) if is_numeric(value) else None
        row = [] if parts is None else [value, *parts.leaves]
        if parts is None or any(map(is_traced, row)):
            return log_prob(distribution, value)
        kind = log_prob, parts.structure, tuple(map(_kind, row))
        waiting = self._waiting.setdefault(kind, Waiting())
        waiting.rows.append(row)
        return Deferred(partial(self._result, kind, len(waiting.results) + len(waiting.rows) - 1))

    def at_once(self, log_prob: Callable[[Any, Any], Any], distribution: Any, value: Any) -> Any:
        """Compute a density that something else than a sum or a product is computed from."""
        return _value(self(log_prob, distribution, value))

    def _result(self, kind: tuple[Any, Any, Any], index: int) -> Any:
        waiting = self._waiting[kind]
        if index >= len(waiting.results):
            for start in range(0, len(waiting.rows), BLOCK):
                waiting.results.extend(_computed(kind, waiting.rows[start : start + BLOCK]))
            waiting.rows.clear()
        return waiting.results[index]


def _kind(x: Any) -> Hashable:
    """Return what must be the same in all rows of a call."""
    if isinstance(x, jax.Array | np.ndarray | np.generic):
        return x.shape, x.dtype, isinstance(x, jax.Array) and x.weak_type
    return type(x), x


def _computed(kind: tuple[Any, Any, Any], rows: list[list[Any]]) -> np.ndarray:
    log_prob, structure, kinds = kind
    padded = rows + rows[-1:] * (BLOCK - len(rows))
    columns = [_column(x, what) for x, what in zip(zip(*padded, strict=True), kinds, strict=True)]
    axes = tuple(None if isinstance(what[0], type) else 0 for what in kinds)
    return np.asarray(_densities(log_prob, structure, axes, columns))[: len(rows)]


def _column(items: tuple[Any, ...], what: Any) -> Any:
    if isinstance(what[0], type):
        return items[0]
    return jax.numpy.stack(items) if what[2] else np.stack([np.asarray(x) for x in items])


@partial(jax.jit, static_argnums=(0, 1, 2))
def _densities(log_prob: Callable[[Any, Any], Any], structure: Any, axes: tuple[Any, ...], columns: list[Any]) -> Any:
    def one(*row: Any) -> Any:
        value, *leaves = row
        return log_prob(jax.tree.unflatten(structure, leaves), value)

    return jax.vmap(one, axes, axis_size=BLOCK)(*columns)
