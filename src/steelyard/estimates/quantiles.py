"""Quantiles of weighted particles. NumPy in, NumPy out; JAX in, JAX out."""

from typing import Any

import jax
import numpy as np

from steelyard.particles import weights


def quantiles(values: Any, log_weights: Any, probabilities: Any) -> Any:
    """Return for each probability p the smallest value such that it and the values below it have p of all weight.

    NaN, if the value of a particle that has weight is NaN, or if no particle has weight.

    Args:
        values: one number for each particle; further axes are further variables.
        log_weights: one for each particle.
        probabilities: an array of one axis, which is the first of the result.

    Example:
        >>> import numpy as np
        >>> from steelyard.estimates.quantiles import quantiles
        >>> quantiles(np.array([3.0, 1.0, 2.0]), np.log([0.5, 0.2, 0.3]), np.array([0.1, 0.4, 0.5, 0.9]))
        array([1., 2., 2., 3.])
    """
    xp = log_weights.__array_namespace__()
    w = weights.normalize(log_weights)
    # Whole numbers have no NaN to tell that there is no answer.
    values = xp.asarray(values, dtype=xp.result_type(values.dtype, w.dtype))

    def of_one(column: Any) -> Any:
        counts = w > 0
        # Particles without weight go to the end, where no probability reaches.
        order = xp.argsort(xp.where(counts, column, np.inf))
        cdf = xp.cumsum(w[order])
        last = xp.maximum(xp.sum(counts) - 1, 0)
        # Of zero the smallest value that has weight, of one the largest, also where rounding has lost its weight.
        index = xp.where(probabilities >= 1, last, xp.clip(xp.searchsorted(cdf, probabilities * cdf[-1]), 0, last))
        known = xp.all(xp.where(counts, column == column, True)) & xp.any(counts)
        return xp.where(known, column[order[index]], np.nan)

    columns = values.reshape(len(values), -1)
    if isinstance(values, np.ndarray):
        found = np.stack([of_one(column) for column in columns.T], axis=-1)
    else:
        found = jax.vmap(of_one, in_axes=1, out_axes=1)(columns)
    return found.reshape(-1, *values.shape[1:])
