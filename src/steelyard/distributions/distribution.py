"""What steelyard asks of a distribution, and one draw from it. Its density is in `distributions/densities.py`."""

import copy
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from steelyard.distributions import supports
from steelyard.distributions.scaled import Scaled
from steelyard.errors import AddressError, ArgumentError
from steelyard.types import Distribution, Key, stop_gradient

# Their density is that of the distribution inside, entry by entry.
WRAPPERS = dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution, Scaled
# Their density is made of densities of others at the same value, some of which may be outside of the support of one.
# A release of NumPyro need not have all of them.
_COMPOUNDS = tuple(
    getattr(dist, name)
    for name in (
        "MixtureGeneral",
        "MixtureSameFamily",
        "FoldedDistribution",
        "ZeroInflatedProbs",
        "HurdleProbs",
        "IntervalCensoredDistribution",
    )
    if hasattr(dist, name)
)


def check_distribution(distribution: Any, address: str, place: str) -> None:
    """Raise `ArgumentError` unless this is a distribution."""
    if isinstance(distribution, type):
        raise ArgumentError(
            f"{place}: {address!r} was given the class {distribution.__name__} where a distribution belongs. "
            f"Call it with its parameters: {distribution.__name__}(...)."
        )
    # NumPyro's first: to look for the methods of a protocol takes longer than a draw.
    if not isinstance(distribution, dist.Distribution | Distribution):
        raise ArgumentError(
            f"{place}: {address!r} was given {distribution!r} where a distribution belongs. "
            f"A distribution has sample(key), or sample(seed=key), and log_prob(value); "
            f"NumPyro's do: numpyro.distributions.Normal(0.0, 1.0)."
        )


def sample(distribution: Distribution, key: Key) -> Any:
    """Draw one value."""
    if "seed" in inspect.signature(distribution.sample).parameters:
        return distribution.sample(seed=key)
    return settled(distribution, distribution.sample(key))


def settled(distribution: Any, value: Any) -> Any:
    """Return a draw, put back where the distribution has a density if rounding took it elsewhere."""
    support = support_of(distribution)
    if is_compound(distribution) and (jax.tree.leaves(support) or _has_atom(distribution)):
        # The bounds that a compound announces may be those of one part, and zero may be meant.
        return value
    if isinstance(distribution, WRAPPERS):
        return settled(distribution.base_dist, value)
    if only_transforms(distribution) and not is_unbounded(distribution.base_dist):
        return _settled_before(distribution, supports.put_inside(support, value))
    if supports.is_everything(support):
        return value
    # The Jacobian of a reciprocal is computed from a square.
    transforms = getattr(distribution, "transforms", ())
    squares = any(isinstance(t, dist.transforms.PowerTransform) for t in transforms)
    return supports.put_inside(support, value, squares=squares)


def _settled_before(distribution: Any, value: Any) -> Any:
    """Return a draw of a transformed distribution that is in the support of the one before the transformation."""
    if any(t.domain.event_dim or t.codomain.event_dim for t in distribution.transforms):
        return value
    step = 2 * jnp.finfo(value.dtype).eps * jnp.maximum(jnp.abs(value), jnp.finfo(value.dtype).tiny)

    def is_settled(y: Any) -> Any:
        x = untransformed(distribution, y)[0]
        return settled(distribution.base_dist, x) == x

    # Neighbours count, because the inverse is rounded as well.
    fine = is_settled(value) & is_settled(value + step) & is_settled(value - step)
    inwards = jnp.sign(some_value(distribution, value) - value)
    return jnp.where(fine, value, value + 2 * inwards * step)


def untransformed(distribution: Any, value: Any) -> tuple[Any, Any]:
    """Return a value before it was transformed, and which events the transforms can reach; these alone are meant."""
    batch_dim = value.ndim - distribution.event_dim
    reached: Any = True
    for transform in reversed(distribution.transforms):
        support = supports.of_numbers(transform.codomain)
        if not supports.is_everything(support):
            inside = supports.inside(support, value)
            reached &= jnp.all(inside, axis=tuple(range(batch_dim, inside.ndim)))
        value = transform.inv(value)
    return value, reached


def some_value(distribution: Any, like: Any) -> Any:
    """Return a value inside of the support, in the shape of another."""
    if not only_transforms(distribution):
        return supports.feasible(support_of(distribution), like)
    value = some_value(distribution.base_dist, untransformed(distribution, like)[0])
    for transform in distribution.transforms:
        value = transform(value)
    return value


def is_reparameterized(distribution: Any) -> bool:
    """Tell whether gradients flow from a draw to the parameters of the distribution."""
    if (has_rsample := getattr(distribution, "has_rsample", None)) is not None:
        return bool(has_rsample)
    return "FULLY_REPARAMETERIZED" in repr(getattr(distribution, "reparameterization_type", None))


def is_unbounded(distribution: Any) -> bool:
    """Tell whether no value is outside of the support of a distribution, as far as is known."""
    if isinstance(distribution, WRAPPERS) or is_compound(distribution) or only_transforms(distribution):
        parts = getattr(distribution, "component_distributions", None)
        parts = parts or [getattr(distribution, "component_distribution", None) or distribution.base_dist]
        if not all(map(is_unbounded, parts)):
            return False
    return supports.is_everything(support_of(distribution))


def support_of(distribution: Any) -> Any:
    """Return the support of a distribution, for one of its numbers if they are independent; None, if not known."""
    return supports.of_numbers(getattr(distribution, "support", None))


def has_method(distribution: Any, name: str, *classes: Any) -> bool:
    """Tell whether a method of a distribution is that of one of these classes, and nobody overrode it."""
    function = getattr(getattr(distribution, name, None), "__func__", None)
    return any(function is getattr(c, name) for c in classes)


def is_compound(distribution: Any) -> bool:
    """Tell whether a density is made of densities of others at the same value."""
    return isinstance(distribution, _COMPOUNDS)


def _has_atom(distribution: Any) -> bool:
    return isinstance(distribution, getattr(dist, "HurdleProbs", ()))


def only_transforms(distribution: Any) -> bool:
    """Tell whether a distribution announces the values of its last transform, not those of the distribution before."""
    transformed = dist.TransformedDistribution
    return isinstance(distribution, transformed) and type(distribution).support is transformed.support


def _shapes(distribution: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the batch and the event shape of a distribution that has them, as NumPyro's do."""
    batch, event = (getattr(distribution, name, None) for name in ("batch_shape", "event_shape"))
    return (batch, event) if isinstance(batch, tuple) and isinstance(event, tuple) else None


def check_proposed(distribution: Distribution, value: Any, address: str, place: str) -> Any:
    """Return a value from elsewhere; raise `AddressError` unless it has the shape of the distribution's draws."""
    if (shapes := _shapes(distribution)) is None:
        return value
    value, shape = _array(value), sum(shapes, ())
    if np.shape(value) != shape:
        raise AddressError(
            f"{place}: the value proposed at {address!r} has shape {np.shape(value)}, "
            f"but the distribution there has shape {shape} for one particle. "
            f"Make the two programs agree on {address!r}, or rename one of them."
        )
    return value


def check_observed(distribution: Distribution, value: Any, address: str, place: str) -> Any:
    """Return an observed value; raise `AddressError` unless each of its numbers has one distribution.

    It has the shape of a draw or, where the distribution is that of one event, any number of axes in front of it.
    Nothing broadcasts: three numbers in a column at three distributions in a row would count nine times.
    """
    if (shapes := _shapes(distribution)) is None:
        return value
    value, (batch, event) = _array(value), shapes
    shape = np.shape(value)
    if shape == batch + event or not batch and shape[len(shape) - len(event) :] == event:
        return value
    if batch and shape[len(shape) - len(batch + event) :] == batch + event:
        remedy = f"If each row is one observation of all of them, use .to_event({len(batch)})"
    else:
        remedy = "Bring the value to that shape with jnp.reshape or jnp.broadcast_to, or the distribution to that of it"
    raise AddressError(
        f"{place}: the value observed at {address!r} has shape {shape}, but the distribution there has batch shape "
        f"{batch} and event shape {event}: one value has shape {batch + event}. {remedy}."
    )


def _array(value: Any) -> Any:
    return jnp.asarray(value) if isinstance(value, list | tuple) else value


def without_gradient(distribution: Any) -> Any:
    """Return the distribution with its parameters under `stop_gradient`."""
    if not isinstance(distribution, dist.Distribution):
        return stop_gradient(distribution)
    # Not as a pytree: some of NumPyro's distributions lose their support on the way.
    new = copy.copy(distribution)
    for name, part in vars(distribution).items():
        setattr(new, name, jax.tree.map(without_gradient, part, is_leaf=lambda x: isinstance(x, dist.Distribution)))
    return new
