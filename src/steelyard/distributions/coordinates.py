"""Values in unconstrained coordinates, in which Markov kernels move: a positive number by its logarithm, and so on.

Which coordinates a variable has depends on its distribution, and that may depend on other variables. So a program is
run with values that are given in one kind of coordinates and asked for in the other. Densities are those of whatever
was given.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from steelyard.distributions import supports
from steelyard.distributions.origins import origin_of
from steelyard.errors import ArgumentError
from steelyard.maps import select
from steelyard.types import Mask


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Position:
    """A value by its unconstrained coordinates. Its density is that of the coordinates."""

    coordinates: Any

    def where(self, present: Mask) -> "Position":
        """Return the position, at the origin in particles that lack the variable."""
        return Position(select(present, self.coordinates, jax.tree.map(jnp.zeros_like, self.coordinates)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Placed:
    """A value whose position is asked for: that is what the trace then holds, if the variable can be moved.

    A discrete variable has no unconstrained coordinates. One that is named is placed where it is.
    """

    value: Any
    named: bool = field(default=False, metadata={"static": True})


class Located(NamedTuple):
    """A value, the position to record in its place, if any, and the log determinant of the coordinates."""

    value: Any
    position: Position | None = None
    log_det: Any = 0.0


def located(given: Any, distribution: Any, address: str, place: str) -> Located:
    """Return the value that was given, in any coordinates, for a variable with this distribution."""
    if isinstance(given, Position):
        return _from_position(given.coordinates, distribution, address, place)
    if not isinstance(given, Placed):
        return Located(given)
    value = given.value
    if not is_continuous(distribution, value):
        return Located(value, Position(value) if given.named else None)
    transform = _bijection(distribution, address, place)
    return Located(value, Position(value if transform is None else transform.inv(value)))


def is_continuous(distribution: Any, value: Any) -> bool:
    """Tell whether a variable has a density: as far as is known, or else if it is made of real numbers."""
    if (origin := origin_of(distribution)) is not None:
        return origin.kind == "density"
    return all(jnp.issubdtype(jnp.result_type(x), jnp.inexact) for x in jax.tree.leaves(value))


def _from_position(coordinates: Any, distribution: Any, address: str, place: str) -> Located:
    transform = _bijection(distribution, address, place) if is_continuous(distribution, coordinates) else None
    if transform is None:
        return Located(coordinates)
    value = transform(coordinates)
    return Located(value, None, jnp.sum(transform.log_abs_det_jacobian(coordinates, value)))


def _bijection(distribution: Any, address: str, place: str) -> Any:
    """Return NumPyro's bijection from real numbers to the support; None, if every number will do."""
    support = getattr(distribution, "support", None)
    if supports.is_everything(supports.of_numbers(support)):
        return None
    try:
        return biject_to(support)
    except NotImplementedError:
        raise ArgumentError(
            f"{place}: {address!r} has the distribution {type(distribution).__name__}, and NumPyro has no "
            f"unconstrained coordinates for its support. Hold {address!r}, and name the variables to move: "
            f"mcmc(kernel, q, only=[...])."
        ) from None
