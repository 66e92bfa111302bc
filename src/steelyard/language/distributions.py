"""What steelyard asks of a distribution: the log density of one particle's value."""

import inspect
from contextlib import nullcontext
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro import validation_enabled
from numpyro.distributions import constraints

from steelyard.errors import AddressError, ArgumentError
from steelyard.types import Distribution, Key, stop_gradient

# Supports that are checked one number at a time. The others (simplex, covariances, ...) hold only up to rounding,
# so that checking them would reject good draws.
_ELEMENTWISE = (
    constraints.greater_than,
    constraints.less_than,
    constraints.interval,
    constraints.integer_greater_than,
    constraints.integer_interval,
    type(constraints.boolean),
)
_REAL = type(constraints.real)


def check_distribution(distribution: Any, address: str, place: str) -> None:
    """Raise `ArgumentError` unless this is a distribution."""
    if not isinstance(distribution, Distribution):
        raise ArgumentError(
            f"{place}: {address!r} was given {distribution!r} where a distribution belongs. "
            f"A distribution has sample(key), or sample(seed=key), and log_prob(value); "
            f"NumPyro's do: numpyro.distributions.Normal(0.0, 1.0)."
        )


def sample(distribution: Distribution, key: Key) -> Any:
    """Draw one value."""
    if "seed" in inspect.signature(distribution.sample).parameters:
        return distribution.sample(seed=key)
    return distribution.sample(key)


def is_reparameterized(distribution: Any) -> bool:
    """Tell whether gradients flow from a draw to the parameters of the distribution."""
    if (has_rsample := getattr(distribution, "has_rsample", None)) is not None:
        return bool(has_rsample)
    return "FULLY_REPARAMETERIZED" in repr(getattr(distribution, "reparameterization_type", None))


def log_prob(distribution: Distribution, value: Any) -> Any:
    """Return the log density of a value that this distribution drew: the sum of all that `log_prob` returns."""
    with validation_enabled(False):
        return _total(distribution.log_prob(value))


def log_prob_anywhere(distribution: Distribution, value: Any) -> Any:
    """Return the log density of a value from elsewhere: -inf outside of the support.

    NumPyro's `log_prob` takes it for granted that the value is in the support: Uniform(0, 1) gives 2.0 density one.
    """
    support = _base(distribution)
    if isinstance(support, _REAL):
        return log_prob(distribution, value)
    if not isinstance(support, _ELEMENTWISE):
        return _total(distribution.log_prob(value))
    shape = getattr(distribution, "batch_shape", ()) + getattr(distribution, "event_shape", ())
    value = jnp.asarray(value)
    value = jnp.broadcast_to(value, jnp.broadcast_shapes(value.shape, shape))
    inside = jnp.all(jnp.asarray(support(value)))
    # The density is taken at a point of the support, else a NaN outside of it would poison the gradient.
    feasible = jnp.where(inside, value, support.feasible_like(value))
    return jnp.where(inside, log_prob(distribution, feasible), -jnp.inf)


def check_shape(distribution: Distribution, value: Any, address: str, place: str) -> None:
    """Raise `AddressError` if a value from elsewhere does not have the shape of the distribution's draws."""
    batch = getattr(distribution, "batch_shape", None)
    event = getattr(distribution, "event_shape", None)
    if not isinstance(batch, tuple) or not isinstance(event, tuple):
        return
    if np.shape(value) != batch + event:
        raise AddressError(
            f"{place}: the value proposed at {address!r} has shape {np.shape(value)}, "
            f"but the distribution there has shape {batch + event} for one particle. "
            f"Make the two programs agree on {address!r}, or rename one of them."
        )


def without_gradient(distribution: Any) -> Any:
    """Return the distribution with its parameters under `stop_gradient`."""
    # A copy that JAX makes keeps NumPyro's checks for good, even where this module does without them.
    with validation_enabled(False) if isinstance(_base(distribution), _REAL) else nullcontext():
        return stop_gradient(distribution)


def _total(density: Any) -> Any:
    return density if np.ndim(density) == 0 else density.sum()


def _base(distribution: Any) -> Any:
    """Return the support of a distribution, for one of its numbers if they are independent."""
    support = getattr(distribution, "support", None)
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support
