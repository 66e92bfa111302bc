"""Log weights. The particles are the last axis; leading axes are batches. NumPy in, NumPy out; JAX in, JAX out.

Log weights may be large: a sum of many log densities is. Whatever depends on their differences is computed after the
largest was subtracted, so that an offset that all particles share changes nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.devices.layout import devices
from steelyard.devices.sums import total_of_fractions

# Longer sums in single precision are made of sums of so many numbers: one accumulator stops growing at 2^24.
BLOCK = 2**20


def total(x: Any) -> Any:
    """Return the sum over particles, with an error that does not grow with their number.

    Example:
        >>> import jax.numpy as jnp
        >>> from steelyard.particles import weights
        >>> int(weights.total(jnp.ones(2**24 + 2)))
        16777218
    """
    xp, size = x.__array_namespace__(), x.shape[-1]
    if isinstance(x, np.ndarray) or size <= BLOCK:
        return xp.sum(x, axis=-1)
    if (count := devices(size)) > 1:
        return xp.sum(total(x.reshape(*x.shape[:-1], count, -1)), axis=-1)
    whole = size - size % BLOCK
    blocks = xp.sum(x[..., :whole].reshape(*x.shape[:-1], -1, BLOCK), axis=-1)
    return total(blocks) + xp.sum(x[..., whole:], axis=-1)


def largest(log_weights: Any) -> Any:
    """Return the largest log weight, through which no gradient flows; zero where it is infinite."""
    xp = log_weights.__array_namespace__()
    top = xp.max(log_weights, axis=-1, keepdims=True)
    top = top if isinstance(top, np.ndarray) else jax.lax.stop_gradient(top)
    return xp.where(xp.isinf(top), 0.0, top)


def relative(log_weights: Any) -> Any:
    """Return log weights that differ by the same amounts, the largest of which is zero."""
    with np.errstate(invalid="ignore"):
        return log_weights - largest(log_weights)


def scaled(log_weights: Any) -> Any:
    """Return the weights in units of the largest."""
    xp = log_weights.__array_namespace__()
    with np.errstate(over="ignore", invalid="ignore"):
        x = relative(log_weights)
        # The exponential that XLA fuses with other operations on a CPU makes a number of NaN.
        return xp.where(xp.isnan(x), xp.nan, xp.exp(x))


def mean(x: Any) -> Any:
    """Return the average over particles of numbers that may be large and nearly equal."""
    return largest(x)[..., 0] + total(relative(x)) / x.shape[-1]


def log_sum(log_weights: Any) -> Any:
    """Return log sum_l w_l."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return largest(log_weights)[..., 0] + _log(total(scaled(log_weights)))


def log_mean(log_weights: Any) -> Any:
    """Return log (1/L) sum_l w_l, the estimate of log Z.

    Example:
        >>> import numpy as np
        >>> from steelyard.particles import weights
        >>> float(weights.log_mean(np.log([1.0, 3.0]))) == float(np.log(2.0))
        True
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return largest(log_weights)[..., 0] + _log(total(scaled(log_weights)) / log_weights.shape[-1])


def log_mean_in_any_order(log_weights: Any) -> Any:
    """Return log (1/L) sum_l w_l of one population, to the last bit the same on any number of devices."""
    if isinstance(log_weights, np.ndarray):
        return log_mean(log_weights)
    return largest(log_weights)[0] + jnp.log(total_of_fractions(scaled(log_weights)) / log_weights.shape[0])


def effective_sample_size_in_any_order(log_weights: Any) -> Any:
    """Return (sum w)^2 / sum w^2 of one population, to the last bit the same on any number of devices."""
    if isinstance(log_weights, np.ndarray):
        return effective_sample_size(log_weights)
    w = scaled(log_weights)
    return total_of_fractions(w) ** 2 / total_of_fractions(w**2)


def log_increment(log_weights: Any, log_factors: Any) -> Any:
    """Return log (sum_l w_l v_l / sum_l w_l), by how much log Z grows when w is multiplied by v.

    Not the difference of two logs, of which nothing would be left where both are large.

    Example:
        >>> import jax.numpy as jnp
        >>> from steelyard.particles import weights
        >>> float(weights.log_increment(jnp.full(3, 3e7), jnp.full(3, 0.25)))
        0.25
    """
    w = relative(log_weights)
    with np.errstate(invalid="ignore"):
        return log_mean(w + log_factors) - log_mean(w)


def _log(x: Any) -> Any:
    return np.log(x) if isinstance(x, np.ndarray | np.generic) else jnp.log(x)


def normalize(log_weights: Any) -> Any:
    """Return w_l / sum w; NaN where every weight is zero."""
    w = scaled(log_weights)
    with np.errstate(invalid="ignore"):
        return w / total(w)[..., None]


def normalize_in_any_order(log_weights: Any) -> Any:
    """Return w_l / sum w of one population, to the last bit the same on any number of devices."""
    if isinstance(log_weights, np.ndarray):
        return normalize(log_weights)
    w = scaled(log_weights)
    return w / total_of_fractions(w)


def effective_sample_size(log_weights: Any) -> Any:
    """Return (sum w)^2 / sum w^2; NaN where every weight is zero."""
    w = scaled(log_weights)
    with np.errstate(invalid="ignore"):
        return total(w) ** 2 / total(w**2)
