"""Maps from addresses to what each particle holds there: the paper's tau and rho, and their domains.

An address may be present in some particles and absent in others, so a domain is a mask per address. A mask that is
the Python constant `True` is the ordinary case and costs nothing: no array is made for it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.ancestors import DeferredGather, Rearrangement, composed, take
from steelyard.output import printable
from steelyard.types import Mask

T = TypeVar("T")


def both(m: Mask, n: Mask) -> Mask:
    """Return where both masks hold."""
    if m is False or n is False:
        return False
    if m is True:
        return n
    return m if n is True else m & n


def invert(m: Mask) -> Mask:
    """Return where the mask does not hold."""
    return not m if isinstance(m, bool) else ~m


def either(m: Mask, n: Mask) -> Mask:
    """Return where at least one mask holds."""
    return invert(both(invert(m), invert(n)))


def select(mask: Mask, yes: Any, no: Any) -> Any:
    """Return `yes` where the mask holds and `no` elsewhere, for trees of arrays whose first axes are the mask's."""
    if isinstance(mask, bool):
        return yes if mask else no

    def choose(a: Any, b: Any) -> Any:
        if isinstance(mask, np.ndarray):
            return np.where(mask, a, b)
        a, b = jnp.asarray(a), jnp.asarray(b)
        return jnp.where(mask.reshape(mask.shape + (1,) * (max(a.ndim, b.ndim) - mask.ndim)), a, b)

    return jax.tree.map(choose, yes, no)


@dataclass(frozen=True, eq=False)
class _Unseen:
    """Facts that travel with a map and are none of its structure: JAX takes any two for the same."""

    facts: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unseen)

    def __hash__(self) -> int:
        return hash(_Unseen)


class Domain(dict[str, Mask]):
    """A set of addresses for each particle: the mask of those that contain an address."""

    def __sub__(self, other: "Domain") -> "Domain":
        return _domain({a: both(m, invert(other.get(a, False))) for a, m in self.items()})

    def __and__(self, other: "Domain") -> "Domain":
        return _domain({a: both(m, other.get(a, False)) for a, m in self.items()})


def _domain(masks: Mapping[str, Mask]) -> Domain:
    return Domain({a: m for a, m in masks.items() if m is not False})


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True)
class Map(Mapping[str, T], Generic[T]):
    """What each particle holds at each address. Reads like a dictionary.

    `masks` has an entry for every address that some particle may lack. `origins` has what is known of the distribution
    that the value at an address is from, if anything is: a constant, for all particles.
    """

    values_at: Mapping[str, T] = field(default_factory=dict)
    masks: Mapping[str, Mask] = field(default_factory=dict)
    origins: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __getitem__(self, address: str) -> T:
        return self._now(address)

    def _now(self, address: str) -> T:
        try:
            value: Any = self.values_at[address]
        except KeyError:
            raise KeyError(f"no variable at {address!r}; there are {', '.join(map(repr, self)) or 'none'}") from None
        return value.now() if isinstance(value, DeferredGather) else value

    def __contains__(self, address: object) -> bool:
        return address in self.values_at

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.values_at))

    def __len__(self) -> int:
        return len(self.values_at)

    def __repr__(self) -> str:
        return printable(repr(dict(self)))

    def present(self, address: str) -> Mask:
        """Return the mask of the particles that hold this address; `True` where all of them do."""
        return self.masks.get(address, True) if address in self.values_at else False

    def of_some(self, address: str) -> T:
        """Return what some particles hold at an address: those that these descend from, if they are not known yet."""
        value: Any = self.values_at[address]
        return value.values if isinstance(value, DeferredGather) else value

    def get(self, address: str, default: Any = None) -> Any:
        """Return what is held at an address, and the default in the particles that hold nothing there."""
        mask = self.present(address)
        if mask is False:
            return default
        value = self._now(address)
        return value if mask is True or default is None else select(mask, value, default)

    def rename(self, new: Callable[[str], str]) -> "Map[T]":
        """Return the same map under other addresses."""
        origins = {new(a): self.origins.get(a) for a in self.values_at}
        masks = {new(a): m for a, m in self.masks.items()}
        return Map({new(a): v for a, v in self.values_at.items()}, masks, origins)

    def reindex(self, ancestors: Any) -> "Map[T]":
        """Return the map in which particle l holds what particle `ancestors[l]` held."""

        # Variables that were taken together before have their ancestors in common.
        both_steps: dict[int, Any] = {}

        def later(value: Any) -> DeferredGather:
            if not isinstance(value, DeferredGather):
                return DeferredGather(value, ancestors)
            before = value.ancestors
            if isinstance(ancestors, Rearrangement):
                return DeferredGather(value.now(), ancestors)
            if id(before) not in both_steps:
                both_steps[id(before)] = composed(before, ancestors)
            return DeferredGather(value.values, both_steps[id(before)])

        values: dict[str, Any] = {a: later(v) for a, v in self.values_at.items()}
        return Map(values, take(dict(self.masks), ancestors), self.origins)

    def of_particle(self, index: int) -> "Map[T]":
        """Return what one particle holds, where values and masks are concrete."""
        held = [a for a in self if a not in self.masks or np.asarray(self.masks[a])[index]]
        return Map({a: jax.tree.map(lambda x: x[index], self[a]) for a in held}, {}, self.origins)

    def __or__(self, other: "Map[T]") -> "Map[T]":
        """Return the union, the paper's circled plus; the caller has seen to it that the domains are disjoint."""
        values_at, masks = dict(self.values_at), dict(self.masks)
        for a, v in other.values_at.items():
            here, there = self.present(a), other.present(a)
            values_at[a] = select(there, other[a], self[a]) if a in values_at else v
            mask = either(here, there)
            masks.pop(a, None)
            if mask is not True:
                masks[a] = mask
        return Map(values_at, masks, common_origins([self, other]))

    def restrict(self, domain: Domain) -> "Map[T]":
        """Return the part of the map that lies in a domain."""
        inside = dom(self) & domain
        masks = {a: m for a, m in inside.items() if m is not True}
        return Map({a: self.values_at[a] for a in inside}, masks, self.origins)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        # In order of addresses, so that maps with the same domain have the same structure.
        names, masked = tuple(sorted(self.values_at)), tuple(sorted(self.masks))
        values = [(jax.tree_util.DictKey(a), self._now(a)) for a in names]
        masks = [(jax.tree_util.GetAttrKey(f"present({a})"), self.masks[a]) for a in masked]
        return values + masks, (names, masked, _Unseen(self.origins))

    @classmethod
    def tree_unflatten(cls, addresses: Any, children: Any) -> "Map[T]":
        names, masked, origins = addresses
        children = list(children)
        return cls(
            dict(zip(names, children[: len(names)], strict=True)),
            dict(zip(masked, children[len(names) :], strict=True)),
            origins.facts,
        )


def dom(m: Map[Any]) -> Domain:
    """Return the domain of a map.

    Example:
        >>> from steelyard.maps import Map, dom
        >>> dom(Map({"z": 1.0, "v": 2.0})) - dom(Map({"v": 0.0}))
        {'z': True}
    """
    return Domain({a: m.present(a) for a in m})


def common_origins(maps: Sequence[Map[Any]]) -> dict[str, Any]:
    """Return the origins of the values of maps for different particles; None, where they differ."""
    found: dict[str, Any] = {}
    for m in maps:
        for a in m.values_at:
            origin = m.origins.get(a)
            found[a] = origin if found.get(a, origin) == origin else None
    return found


def chosen(mask: Mask, new: Map[Any], old: Map[Any], same: Collection[str]) -> Map[Any]:
    """Return the new map where the mask holds, and the old one elsewhere; at some addresses they are the same."""
    values: dict[str, Any] = {}
    masks: dict[str, Mask] = {}
    for a in {**old.values_at, **new.values_at}:
        here, there = new.present(a), old.present(a)
        if a in same or here is False:
            values[a] = old.values_at[a]
        else:
            values[a] = new.values_at[a] if there is False else select(mask, new[a], old[a])
        if a in same:
            present = there
        else:
            present = here if here is there else either(both(mask, here), both(invert(mask), there))
        if present is not True:
            masks[a] = present
    return Map(values, masks, common_origins([new, old]))


def log_product(log_density: Map[Any], over: Domain, log_one: Any) -> Any:
    """Return the log of the product of densities over a domain; `log_one` is that of the empty product."""
    total = log_one
    for address, mask in over.items():
        total = total + select(mask, log_density[address], 0.0)
    return total


def log_ratio(above: Map[Any], over: Domain, below: Map[Any], under: Domain, log_one: Any) -> Any:
    """Return the log of a product of densities over a domain, divided by another; what is divided by zero is zero.

    Address by address: where two densities are large and nearly the same, their difference is small.
    """
    total = log_one
    for address in dict.fromkeys((*over, *under)):
        u = select(under[address], below[address], 0.0) if address in under else 0.0
        w = select(over[address], above[address], 0.0) if address in over else 0.0
        # Dividing by inf gives zero, and NaN where the numerator is NaN.
        total = total + (w - select(u == -np.inf, np.inf, u))
    return total
