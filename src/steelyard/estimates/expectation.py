"""Expectations over weighted particles, some of which may lack a variable."""

from collections.abc import Callable, ItemsView, Iterable, ValuesView
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from steelyard.errors import AddressError, WeightError
from steelyard.maps import Map, both, select
from steelyard.particles import weights
from steelyard.types import LogWeights, is_traced


def expectation(h: Callable[[Map[Any]], Any], trace: Map[Any], log_weight: LogWeights, given: Iterable[str]) -> Any:
    """Return sum_l w_l h(tau_l) / sum_l w_l over the particles that have the given variables."""
    given = [given] if isinstance(given, str) else list(given)
    held: Any = True
    for a in given:
        if trace.present(a) is False:
            raise AddressError(f"expect: no particle has {a!r}; there are {', '.join(map(repr, trace)) or 'none'}.")
        held = both(held, trace.present(a))
    log_weight = select(held, log_weight, -np.inf)
    sometimes = frozenset(a for a in trace if a not in given and not _everywhere(trace.present(a)))

    def of_one(particle: Map[Any]) -> Any:
        return h(_Guarded(particle.values_at, particle.masks, particle.origins, sometimes) if sometimes else particle)

    if isinstance(log_weight, np.ndarray):
        index = np.arange(log_weight.size) if held is True else np.flatnonzero(held)
        if not index.size:
            raise WeightError(f"expect: no particle has {' and '.join(map(repr, given))}, so that nothing is known.")
        each = [of_one(trace.of_particle(int(l))) for l in index]
        terms = jax.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *each)
        return jax.tree.map(lambda x: _average(weights.normalize(log_weight[index]), x), terms)

    def average(trace: Map[Any], normalized: Any) -> Any:
        return jax.tree.map(lambda x: _average(normalized, x), jax.vmap(of_one)(trace))

    for _ in range(log_weight.ndim - 1):
        average = jax.vmap(average)
    return average(trace, weights.normalize(log_weight))


@dataclass(frozen=True)
class _Guarded(Map[Any]):
    """The trace of one particle, in which variables that some particles lack cannot be read by their address.

    `get` gives a default for these. Where particles run one by one, whoever goes through all items sees those that the
    particle has.
    """

    sometimes: frozenset[str] = frozenset()

    def __getitem__(self, address: str) -> Any:
        if address in self.sometimes:
            raise AddressError(
                f"expect: not every particle has {address!r}. Give a value for those that lack it, "
                f"t.get({address!r}, 0.0), or ask for the expectation given that it is there, "
                f"expect(h, given=[{address!r}])."
            )
        return super().__getitem__(address)

    def __contains__(self, address: object) -> bool:
        if address in self.masks and address in self.sometimes:
            raise AddressError(
                f"expect: a particle may have {address!r} or not, which is not known while all of them run at once. "
                f"Use t.present({address!r})."
            )
        return address in self.values_at

    def items(self) -> ItemsView[str, Any]:
        return super().items() if self.masks else Map(self.values_at).items()

    def values(self) -> ValuesView[Any]:
        return super().values() if self.masks else Map(self.values_at).values()


def _everywhere(mask: Any) -> bool:
    """Tell whether every particle has a variable, as far as that is known."""
    return mask is True or not is_traced(mask) and bool(np.all(mask))


def _average(normalized: Any, terms: Any) -> Any:
    xp = terms.__array_namespace__()
    w = normalized.reshape(normalized.shape + (1,) * (terms.ndim - 1))
    # A particle of weight zero must not count, even where h is infinite.
    with np.errstate(invalid="ignore"):
        return weights.total(xp.moveaxis(xp.where(w == 0, 0.0, w * terms), 0, -1))
