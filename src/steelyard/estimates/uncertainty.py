"""How sure an evaluation is of log Z, from its own particles."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from steelyard.estimates.genealogy import relative_variances


class Uncertain:
    """What an evaluation tells of its own errors."""

    @property
    def log_z_variance(self: Any) -> Float[Array, "..."]:
        """An estimate of the variance of log Z, from the genealogy of this run; its square root is a standard error.

            V = 1 - (N / (N - 1))^(n + 1) (1 - sum_e W_e^2)

        for N particles that were resampled n times; W_e is the share of all weight that descends from particle e of the
        first population. Z^2 V is an unbiased estimate of the variance of Z, and V is near the variance of log Z where
        that is small. Without resampling it is the usual estimate of importance sampling. It may be negative, and the
        more resamplings there were, the fewer ancestors are left, and the noisier it is.

        This is for `resample(q, method="multinomial")`. Other methods copy particles with less noise than V takes for
        granted, so that V is too small, often below zero: where particles were resampled by them, it is NaN. With a
        threshold, or a schedule chosen from the particles, n depends on the particles, and V is an approximation. NaN
        also where all weight descends from one particle, which tells nothing, of one particle, and of what
        `Evaluation.resample` returns.

        References:
            Lee and Whiteley (2018).

        Example:
            >>> import jax, numpyro.distributions as dist, steelyard as sy
            >>> def model(s, x): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), x)
            >>> out = sy.evaluate(sy.resample(model, method="multinomial"), jax.random.key(0), 0.5, particles=1000)
            >>> bool(0 < out.log_z_variance < 0.01)
            True
        """
        xp = self.log_weight.__array_namespace__()
        eves = self.ancestors
        if eves is None:
            eves = xp.broadcast_to(xp.arange(self.particles), self.log_weight.shape)
        found = relative_variances(self.log_weight, eves, _resamplings(self, lambda level: True))
        others = _resamplings(self, lambda level: level.method != "multinomial")
        return xp.where(xp.asarray(self.record.redrawn) | (others > 0), np.nan, found)


def _resamplings(e: Any, counts: Callable[[Any], bool]) -> Any:
    """Return how often particles were resampled, at levels that count."""
    xp, batch = e.log_weight.__array_namespace__(), e.log_weight.ndim - 1
    each = (xp.asarray(level.resampled) for level in e.levels if counts(level))
    total = sum((xp.sum(x, axis=tuple(range(batch, x.ndim))) for x in each), start=xp.asarray(0))
    return xp.broadcast_to(total, e.log_weight.shape[:-1])
