"""The values that a distribution can draw: whether a number is one of them, and which of them lie next to the edge.

NumPyro describes a support by a constraint. Its own checks are meant for a person's data. Here a draw that differs from
the support by rounding alone counts as inside, and a draw that underflows to the edge is put back.
"""

from typing import Any

import jax.numpy as jnp
from numpyro.distributions import constraints

_LOWER_BOUNDED = constraints.greater_than, constraints.integer_greater_than
_UPPER_BOUNDED = constraints.less_than
_INTERVAL = constraints.interval, constraints.integer_interval
_MATRIX_WITH_POSITIVE_DIAGONAL = type(constraints.lower_cholesky), type(constraints.corr_cholesky)
_POSITIVE_DEFINITE = type(constraints.positive_definite), type(constraints.positive_semidefinite)


def of_numbers(support: Any) -> Any:
    """Return the constraint of one number or event, where a support is that of many; None, if it is not known."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return None if not isinstance(support, constraints.Constraint) or constraints.is_dependent(support) else support


def is_everything(support: Any) -> bool:
    """Tell whether nothing is outside of a support, as far as is known."""
    return support is None or isinstance(support, type(constraints.real) | type(constraints.complex))


def bounds(support: Any) -> tuple[Any, Any] | None:
    """Return the bounds that each number has for itself, None for none; None, if numbers are bound to each other."""
    if isinstance(support, type(constraints.real)):
        return None, None
    if isinstance(support, type(constraints.boolean)):
        return 0, 1
    if isinstance(support, _INTERVAL):
        return support.lower_bound, support.upper_bound
    if isinstance(support, _LOWER_BOUNDED):
        return support.lower_bound, None
    return (None, support.upper_bound) if isinstance(support, _UPPER_BOUNDED) else None


def inside(support: Any, value: Any) -> Any:
    """Return which numbers, or events, are in a support; those that are off by rounding are."""
    last = value.shape[-1] if value.ndim else 1
    rounding = 10 * jnp.finfo(jnp.result_type(value, float)).eps * max(last, 10)
    if isinstance(support, type(constraints.simplex)):
        return jnp.all(value >= 0, axis=-1) & (jnp.abs(jnp.sum(value, axis=-1) - 1) < rounding)
    if isinstance(support, (*_POSITIVE_DEFINITE, type(constraints.corr_matrix))):
        # An eigenvalue of zero is one up to rounding. What matters is that the density can factorise the matrix.
        possible = jnp.all(jnp.isclose(value, jnp.swapaxes(value, -2, -1)), axis=(-2, -1))
        possible &= jnp.all(jnp.isfinite(jnp.linalg.cholesky(value)), axis=(-2, -1))
        if isinstance(support, type(constraints.corr_matrix)):
            diagonal = jnp.diagonal(value, axis1=-2, axis2=-1)
            possible &= jnp.all(jnp.abs(diagonal - 1) < rounding, axis=-1)
        return possible
    return jnp.asarray(support(value))


def feasible(support: Any, value: Any) -> Any:
    """Return a point of the support, in the shape of a value."""
    if support is None:
        return jnp.zeros_like(value)
    if not isinstance(support, constraints.interval):
        return support.feasible_like(value)
    # Half-way, unless a bound is infinite.
    low, high = (jnp.asarray(x, float) for x in (support.lower_bound, support.upper_bound))
    low, high = jnp.where(jnp.isfinite(low), low, high - 2), jnp.where(jnp.isfinite(high), high, low + 2)
    point = jnp.where(jnp.isfinite(low) & jnp.isfinite(high), low + (high - low) / 2, 0.0)
    return jnp.broadcast_to(point, jnp.shape(value))


def put_inside(support: Any, value: Any, *, squares: bool = False) -> Any:
    """Return a draw, moved to where the density of the support's kind is finite.

    A number that is smaller than the smallest float is drawn as zero, one that is larger than the largest as infinity.
    With `squares`, the squares of numbers are to be floats as well.
    """
    value = jnp.asarray(value)
    if is_everything(support) or value.size == 0:
        return value
    low, high = bounds(support) or (None, None)
    if support.is_discrete:
        value = value if low is None else _at_least(jnp.asarray(low, value.dtype), value)
        if high is None and jnp.issubdtype(value.dtype, jnp.integer):
            # Densities add one.
            high = jnp.iinfo(value.dtype).max - 1
        return value if high is None else _at_most(jnp.asarray(high, value.dtype), value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return value
    info = jnp.finfo(value.dtype)
    if isinstance(support, type(constraints.simplex)):
        return _at_least(info.tiny, value)
    if isinstance(support, _MATRIX_WITH_POSITIVE_DIAGONAL):
        return jnp.where(jnp.eye(value.shape[-1], dtype=bool), _at_least(info.tiny, value), value)
    if low is None and high is None:
        return value
    # The reciprocal of the largest one is a float as well, and that of the smallest.
    smallest, largest = info.tiny, 1 / (4 * info.tiny)
    if squares:
        smallest, largest = 2 * smallest**0.5, largest**0.5
    low, high = -largest if low is None else low, largest if high is None else high
    low, high = jnp.asarray(low, value.dtype), jnp.asarray(high, value.dtype)
    if isinstance(support, type(constraints.unit_interval)):
        high = high - info.epsneg
    elif _is_open(support):
        low, high = _next(low, largest), _next(high, -largest)
    # Zero may be a draw that underflowed, where a density may be infinite.
    low, high = jnp.where(low == 0, smallest, low), jnp.where(high == 0, -smallest, high)
    return _at_most(jnp.minimum(high, largest), _at_least(jnp.maximum(low, -largest), value))


def _is_open(support: Any) -> bool:
    closed = constraints.greater_than_eq, constraints.less_than_eq
    return isinstance(support, constraints.greater_than | constraints.less_than) and not isinstance(support, closed)


def _next(x: Any, towards: Any) -> Any:
    return jnp.where(x == 0, x, jnp.nextafter(x, jnp.asarray(towards, x.dtype)))


def _at_least(low: Any, value: Any) -> Any:
    # NaN stays NaN. Numbers at the bound carry no gradient.
    return jnp.where(value < low, low, value)


def _at_most(high: Any, value: Any) -> Any:
    return jnp.where(value > high, high, value)
