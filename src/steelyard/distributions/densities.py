"""The log density of one particle's value, where the distribution drew it and anywhere else.

NumPyro's checks are left out: they warn, they take draws that are off by rounding for wrong, and the switch that turns
them off is one for the whole process. Densities are taken of copies, which check nothing and have density zero outside
of their support.
"""

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from steelyard.distributions import supports
from steelyard.distributions.distribution import (
    WRAPPERS,
    has_method,
    is_compound,
    is_unbounded,
    only_transforms,
    some_value,
    support_of,
    untransformed,
)
from steelyard.types import Distribution

# How a function that computes a density is called, with a distribution and a value.
Density = Callable[[Callable[[Any, Any], Any], Any, Any], Any]


def computed(log_prob: Callable[[Any, Any], Any], distribution: Any, value: Any) -> Any:
    """Compute a density."""
    return log_prob(distribution, value)


def scaled(log_density: Any, scale: Any) -> Any:
    """Return a log density times a scale; itself, if that is one."""
    return log_density if isinstance(scale, float) and scale == 1 else log_density * scale


def log_prob(distribution: Distribution, value: Any) -> Any:
    """Return the log density of a value that this distribution drew: the sum of all that `log_prob` returns."""
    return _total(_unvalidated(distribution).log_prob(value))


def log_prob_anywhere(distribution: Distribution, value: Any) -> Any:
    """Return the log density of a value from elsewhere: -inf outside of the support, with gradient zero.

    NumPyro's `log_prob` takes it for granted that the value is in the support: Uniform(0, 1) gives 2.0 density one.
    """
    if is_unbounded(distribution):
        return log_prob(distribution, value)
    total = _total(_guarded(distribution).log_prob(_as_number(value)))
    return jnp.where(total == -jnp.inf, -jnp.inf, total)


def log_prob_terms(distribution: Distribution, value: Any) -> Any:
    """Return the log densities that `log_prob_anywhere` is the sum of, in the shape that `log_prob` returns."""
    if is_unbounded(distribution):
        return _unvalidated(distribution).log_prob(value)
    terms = _guarded(distribution).log_prob(_as_number(value))
    return jnp.where(terms == -jnp.inf, -jnp.inf, terms)


def _unvalidated(distribution: Any) -> Any:
    """Return the distribution without NumPyro's checks, which warn of values outside of the support.

    A copy, because NumPyro's own switch is one for the whole process.
    """
    return _copy(distribution, _guarded if is_compound(distribution) else _unvalidated)


def _guarded(distribution: Any) -> Any:
    """Return the distribution with density zero outside of its support, and without NumPyro's checks."""
    if has_method(distribution, "log_prob", *WRAPPERS):
        return _copy(distribution, _guarded)
    plain = _copy(distribution, _guarded) if only_transforms(distribution) else _unvalidated(distribution)
    # What a compound announces may be the support of one part; but a folded one has densities on both sides of zero.
    answers = is_compound(distribution) and not isinstance(distribution, dist.FoldedDistribution)
    if answers or not only_transforms(distribution) and supports.is_everything(support_of(distribution)):
        return plain
    log_prob = partial(_log_prob_inside, plain.log_prob, distribution)
    if plain is distribution:
        return SimpleNamespace(log_prob=log_prob)
    plain.log_prob = log_prob
    return plain


def _copy(distribution: Any, nested: Any) -> Any:
    """Return a copy that checks nothing, made of such copies of the distributions that it is made of."""
    if not isinstance(distribution, dist.Distribution):
        return distribution
    new = copy.copy(distribution)
    new._validate_args = False
    for name, part in vars(distribution).items():
        if isinstance(part, dist.Distribution):
            setattr(new, name, nested(part))
        elif isinstance(part, list) and part and all(isinstance(x, dist.Distribution) for x in part):
            setattr(new, name, [nested(x) for x in part])
    return new


def _log_prob_inside(log_prob: Any, distribution: Any, value: Any) -> Any:
    shape = getattr(distribution, "batch_shape", ()) + getattr(distribution, "event_shape", ())
    value = jnp.asarray(value)
    value = jnp.broadcast_to(value, jnp.broadcast_shapes(value.shape, shape))
    if only_transforms(distribution):
        inside = untransformed(distribution, value)[1]
        if inside is True:
            return log_prob(value)
    else:
        inside = supports.inside(support_of(distribution), value)
        # A support may be announced for numbers where the density is one for an event.
        event_dim = len(getattr(distribution, "event_shape", ()))
        inside = jnp.all(inside, axis=tuple(range(value.ndim - event_dim, inside.ndim)))
    # The density is taken at a point of the support, else a NaN outside of it would poison the gradient.
    choice = inside.reshape(inside.shape + (1,) * (value.ndim - inside.ndim))
    density = log_prob(jnp.where(choice, value, some_value(distribution, value)))
    return jnp.where(inside, density, -jnp.inf)


def _as_number(value: Any) -> Any:
    value = jnp.asarray(value)
    return value.astype(int) if value.dtype == bool else value


def _total(density: Any) -> Any:
    return density if np.ndim(density) == 0 else density.sum()
