"""Differentiable bijections of other libraries, under one roof."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions.transforms import Transform

from steelyard.errors import ArgumentError

# The methods that give a value and its log determinant at once: distrax's, flowjax's.
_PAIRS = ("forward_and_log_det", "inverse_and_log_det"), ("transform_and_log_det", "inverse_and_log_det")
# Those that give the log determinant of the way forward: ours, TFP's.
_DETERMINANTS = "log_det", "forward_log_det_jacobian"


class Bijection(NamedTuple):
    """A bijection as two functions, each of which returns what it makes of a value and its log determinant."""

    forward: Callable[[Any], tuple[Any, Any]]
    inverse: Callable[[Any], tuple[Any, Any]]


def bijection_of(bijection: Any) -> Bijection:
    """Return the two functions of a bijection, for the value of one particle; raise `ArgumentError` if it is none."""
    if isinstance(bijection, Transform):
        return _of_numpyro(bijection)
    for names in _PAIRS:
        forward, inverse = (_method(bijection, name) for name in names)
        if forward is not None and inverse is not None:
            return Bijection(forward, inverse)
    forward, inverse = (_method(bijection, name) for name in ("forward", "inverse"))
    determinant = next((f for name in _DETERMINANTS if (f := _method(bijection, name)) is not None), None)
    if forward is None or inverse is None or determinant is None:
        raise ArgumentError(
            f"transport: {bijection!r} is no bijection. A bijection is a transform of NumPyro, or an object with "
            f"forward(x), inverse(y) and log_det(x), the log of the absolute determinant of the way forward."
        )

    def back(y: Any) -> tuple[Any, Any]:
        x = inverse(y)
        return x, -determinant(x)

    return Bijection(lambda x: (forward(x), determinant(x)), back)


def _method(bijection: Any, name: str) -> Callable[[Any], Any] | None:
    """Return a method of an object; a class has none that can be called."""
    method = None if isinstance(bijection, type) else getattr(bijection, name, None)
    return method if callable(method) else None


def _of_numpyro(transform: Transform) -> Bijection:
    def forward(x: Any) -> tuple[Any, Any]:
        y = transform(x)
        return y, transform.log_abs_det_jacobian(x, y)

    def inverse(y: Any) -> tuple[Any, Any]:
        x: Any = transform.inv(y)
        return x, -transform.log_abs_det_jacobian(x, y)

    return Bijection(forward, inverse)


def is_joint(bijection: Any, addresses: Sequence[str]) -> bool:
    """Tell whether a bijection mixes variables. NumPyro's transforms are applied to each on its own."""
    return len(addresses) > 1 and not isinstance(bijection, Transform)


def pushed(bijection: Any, values: dict[str, Any], *, back: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a bijection, or its inverse, makes of the values of a particle, and log determinants by address.

    Where it mixes the variables there is one determinant, that of the first.
    """
    both = bijection_of(bijection)
    function = both.inverse if back else both.forward
    if is_joint(bijection, list(values)):
        moved, log_det = function(values)
        return moved, {min(values): _total(log_det)}
    pairs = {a: function(x) for a, x in values.items()}
    return {a: y for a, (y, _) in pairs.items()}, {a: _total(log_det) for a, (_, log_det) in pairs.items()}


def _total(log_det: Any) -> Any:
    return sum((jnp.sum(jnp.asarray(x)) for x in jax.tree.leaves(log_det)), start=jnp.zeros(()))
