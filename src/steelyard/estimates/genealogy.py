"""How sure an estimate of Z is, from whose descendants the particles of a single run are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.particles import weights


def relative_variance(log_weights: Any, eves: Any, resamplings: Any) -> Any:
    """Estimate var(Z) / Z^2 for Z, the average weight, from one run with multinomial resampling.

        V = 1 - (N / (N - 1))^(n + 1) (1 - sum_e W_e^2)

    for N particles that were resampled n times, where W_e is the share of all weight that descends from particle e of
    the first population. Z^2 V is an unbiased estimate of var(Z); it may be negative. Without resampling V is the usual
    estimate of importance sampling.

    Args:
        log_weights: one for each particle.
        eves: for each particle the one of the first population that it descends from.
        resamplings: how often particles were resampled.

    Returns:
        V; NaN for one particle, and where all weight descends from one, which tells nothing.

    References:
        Lee and Whiteley (2018).

    Example:
        >>> import numpy as np
        >>> from steelyard.estimates.genealogy import relative_variance
        >>> round(float(relative_variance(np.log([0.2, 0.3, 0.5]), np.array([0, 0, 2]), 1)), 6)
        -0.125
    """
    xp, size = log_weights.__array_namespace__(), log_weights.shape[-1]
    if size == 1:
        return xp.full_like(log_weights[..., 0], np.nan)
    w = weights.normalize(log_weights)
    if isinstance(w, np.ndarray):
        shares = np.bincount(eves, w, minlength=size)
    else:
        shares = jnp.zeros_like(w).at[eves].add(w)
    # Not 1 minus a number near 1: for many particles nothing would be left of the difference.
    exponent = -(resamplings + 1) * np.log1p(-1 / size)
    found = xp.exp(exponent) * xp.sum(shares**2) - xp.expm1(exponent)
    return xp.where(xp.sum(shares > 0) > 1, found, np.nan)


def relative_variances(log_weights: Any, eves: Any, resamplings: Any) -> Any:
    """Return what `relative_variance` does for each run of a batch."""
    each = relative_variance
    for _ in range(log_weights.ndim - 1):
        each = jax.vmap(each)
    return each(log_weights, eves, resamplings)
