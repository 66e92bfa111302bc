"""Weighted quantiles: particles without weight, values that are not finite, one particle."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.estimates.quantiles import quantiles

P = np.array([0.0, 0.3, 1.0])
INF, NAN = np.inf, np.nan
# Values, log weights, quantiles.
CASES = [
    ([NAN, 5.0, -INF, 2.0], [-INF, 0.0, -INF, -0.1], [2.0, 2.0, 5.0]),
    ([INF, -INF, 0.0, 3.0], [0.0, 0.0, 0.0, -INF], [-INF, -INF, INF]),
    ([1.0, NAN, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0], [NAN] * 3),
    ([1.0, 2.0, 3.0, 4.0], [-INF] * 4, [NAN] * 3),
    ([1.0, 2.0, 3.0, 4.0], [NAN, 0.0, 0.0, 0.0], [NAN] * 3),
    ([9.0, 1.0, 4.0, 2.0], [-1e5, -1e5 - 30, -1e5, -1e5], [1.0, 2.0, 9.0]),
    ([7.0, 7.0, 7.0, 8.0], [0.0, 0.0, 0.0, -60.0], [7.0, 7.0, 8.0]),
]


def test_values_and_weights_that_are_not_finite() -> None:
    values, log_weights, expected = (np.array(x, np.float32) for x in zip(*CASES, strict=True))
    for x, w, known in zip(values, log_weights, expected, strict=True):
        np.testing.assert_array_equal(quantiles(x, w, P), known)
    found = jax.jit(jax.vmap(lambda x, w: quantiles(x, w, jnp.asarray(P))))(values, log_weights)
    np.testing.assert_array_equal(found, expected)


def test_one_particle_and_several_variables() -> None:
    np.testing.assert_array_equal(quantiles(np.array([7]), np.array([-1e5]), P), [7, 7, 7])

    def both(values: Any, log_weights: Any, p: Any) -> None:
        np.testing.assert_array_equal(quantiles(values, log_weights, p), [[1, 5], [2, 5], [2, 6]])

    values, log_weights = np.array([[1.0, 6.0], [2.0, 5.0]]), np.log([0.2, 0.8])
    both(values, log_weights, P)
    both(jnp.asarray(values), jnp.asarray(log_weights), jnp.asarray(P))
