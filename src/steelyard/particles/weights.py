"""Log weights. The particles are the last axis; leading axes are batches. NumPy in, NumPy out; JAX in, JAX out."""

from typing import Any

import jax
import numpy as np


def log_sum(log_weights: Any) -> Any:
    """Return log sum_l w_l."""
    if isinstance(log_weights, np.ndarray):
        with np.errstate(invalid="ignore"):
            return np.logaddexp.reduce(log_weights, axis=-1)
    return jax.nn.logsumexp(log_weights, axis=-1)


def log_mean(log_weights: Any) -> Any:
    """Return log (1/L) sum_l w_l, the estimate of log Z.

    Example:
        >>> import numpy as np
        >>> from steelyard.particles import weights
        >>> float(weights.log_mean(np.log([1.0, 3.0]))) == float(np.log(2.0))
        True
    """
    return log_sum(log_weights) - np.log(log_weights.shape[-1])


def normalize(log_weights: Any) -> Any:
    """Return w_l / sum w; NaN where every weight is zero."""
    xp = log_weights.__array_namespace__()
    with np.errstate(invalid="ignore"):
        return xp.exp(log_weights - log_sum(log_weights)[..., None])


def effective_sample_size(log_weights: Any) -> Any:
    """Return (sum w)^2 / sum w^2; NaN where every weight is zero."""
    xp = log_weights.__array_namespace__()
    with np.errstate(invalid="ignore"):
        return xp.exp(2 * log_sum(log_weights) - log_sum(2 * log_weights))
