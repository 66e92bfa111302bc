"""What is known of the distribution that a value was drawn from, before anything runs.

The weight of a proposal is a ratio of two densities, and it means something only where both are of the same kind and
the proposal reaches whatever the target reaches: the target is absolutely continuous with respect to the proposal.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np
import numpyro.distributions as dist

from steelyard.distributions import supports
from steelyard.distributions.distribution import is_compound, is_unbounded, only_transforms, support_of
from steelyard.types import is_traced

Kind: TypeAlias = Literal["density", "mass", "point", "mixed"]

KINDS: dict[Kind, str] = {
    "density": "has a density",
    "mass": "is discrete",
    "point": "puts everything on one point",
    "mixed": "has both a density and points with mass",
}
ROUNDING = 1e-6


class Region(NamedTuple):
    """Where a distribution draws: numbers with bounds, or events of a form such as simplex.

    Of a bound that differs between the numbers of an array, the smallest and the largest are known; None, if neither
    is. Bounds are infinite where there are none.
    """

    form: str
    low: tuple[float, float] | None = None
    high: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.form != "numbers":
            return f"a {self.form}"
        low, high = ("?" if b is None else f"{b[i]:g}" for i, b in enumerate((self.low, self.high)))
        return "all numbers" if (low, high) == ("-inf", "inf") else f"numbers from {low} to {high}"


@dataclass(frozen=True)
class Origin:
    """The kind of a distribution, the values that it can draw, where they are known, and its name."""

    kind: Kind
    region: Region | None = None
    name: str = field(default="", compare=False)

    def is_comparable(self, other: "Origin") -> bool:
        """Tell whether a ratio of densities means something: a point with mass has none."""
        groups = [{"point": "mass"}.get(origin.kind, origin.kind) for origin in (self, other)]
        return groups[0] == groups[1]

    def surely_misses(self, target: "Origin") -> bool:
        """Tell whether a target has values that a proposal from here never has. What is not known is not missed."""
        if self.kind == "point":
            return target.kind == "mass"
        q, p = self.region, target.region
        if q is None or p is None or p.form != "numbers":
            return False
        if q.form != "numbers":
            # Numbers that are bound to each other cannot go everywhere on their own.
            return (p.low, p.high) != (None, None) and np.inf in (-(p.low or [0])[0], (p.high or [0])[0])
        too_high = q.low and p.low and _exceeds(q.low, p.low)
        too_low = q.high and p.high and _exceeds(_negative(q.high), _negative(p.high))
        return bool(too_high or too_low)


def origin_of(distribution: Any) -> Origin | None:
    """Return what is known of a distribution; None, if that is nothing."""
    name = type(distribution).__name__
    match distribution:
        case dist.MaskedDistribution():
            return None
        case dist.Independent() | dist.ExpandedDistribution():
            return origin_of(distribution.base_dist)
        case dist.Delta():
            return Origin("point", None, name)
        case _ if only_transforms(distribution):
            before = origin_of(distribution.base_dist)
            return before and Origin(before.kind, _transformed(distribution, before.region), name)
    parts = getattr(distribution, "component_distributions", None)
    if parts is not None:
        kind = _mixed_kind([origin_of(part) for part in parts])
    elif isinstance(distribution, getattr(dist, "HurdleProbs", ())):
        inside = origin_of(distribution.base_dist)
        kind = "mixed" if inside is not None and inside.kind == "density" else inside and inside.kind
    elif (support := support_of(distribution)) is not None:
        kind: Kind | None = "mass" if support.is_discrete else "density"
    else:
        kind = None
    return None if kind is None else Origin(kind, _region(distribution), name)


def _mixed_kind(parts: list[Origin | None]) -> Kind | None:
    kinds = {None if part is None else part.kind for part in parts}
    if None in kinds:
        return None
    return "mass" if kinds <= {"mass", "point"} else "density" if kinds == {"density"} else "mixed"


def _region(distribution: Any) -> Region | None:
    support = support_of(distribution)
    # The bounds that a compound announces may be those of one part, or those before it was bounded.
    bounded = jax.tree.leaves(support) or isinstance(distribution, dist.FoldedDistribution)
    if support is None or is_compound(distribution) and bounded:
        return None
    if (bounds := supports.bounds(support)) is None:
        return Region(type(support).__name__.strip("_"))
    low, high = (_known(b, nothing) for b, nothing in zip(bounds, (-np.inf, np.inf), strict=True))
    return Region("numbers", low, high)


def _transformed(distribution: Any, before: Region | None) -> Region | None:
    if is_unbounded(distribution.base_dist):
        return _region(distribution)
    for transform in distribution.transforms:
        known = isinstance(transform, dist.transforms.AffineTransform)
        known = known and not is_traced(transform.loc) and not is_traced(transform.scale)
        if not known or np.size(transform.loc) != 1 or np.size(transform.scale) != 1:
            return None
        if before is None or before.form != "numbers" or before.low is None or before.high is None:
            return None
        location, scale = (np.asarray(x).item() for x in (transform.loc, transform.scale))
        low, high = ((location + scale * b[0], location + scale * b[1]) for b in (before.low, before.high))
        before = Region("numbers", low, high) if scale > 0 else Region("numbers", high[::-1], low[::-1])
    return before


def _known(bound: Any, nothing: float) -> tuple[float, float] | None:
    if bound is None:
        return nothing, nothing
    if is_traced(bound) or np.size(bound) == 0:
        return None
    # In NumPy: operations of JAX would give a tracer where something is being traced.
    bound = np.asarray(bound)
    return float(bound.min()), float(bound.max())


def _exceeds(q: tuple[float, float], p: tuple[float, float]) -> bool:
    """Tell whether the lower bound q of some number is above p, whichever numbers the extremes belong to."""
    return any(a > b + ROUNDING * abs(b) if np.isfinite(b) else a > b for a, b in zip(q, p, strict=True))


def _negative(bound: tuple[float, float]) -> tuple[float, float]:
    return -bound[1], -bound[0]
