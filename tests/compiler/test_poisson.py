"""Numbers of events are distributed as Poisson's, for rates of every size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from steelyard.compiler.draws import draw
from steelyard.compiler.poisson import LARGE, SMALL, poisson
from steelyard.compiler.randomness import particle_key, scattered

WORDS = scattered(jax.random.key(8))


def draws(distribution: Any, particles: int) -> np.ndarray:
    return np.asarray(
        jax.jit(jax.vmap(lambda l: draw(distribution, particle_key(WORDS, l))))(jnp.arange(particles)), float
    )


def is_distributed_as(values: np.ndarray, exact: Any) -> bool:
    """Tell whether draws fill the steps of a distribution function evenly."""
    within = np.random.default_rng(0).random(values.shape)
    return scipy.stats.kstest(exact.cdf(values - 1) + within * exact.pmf(values), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.02, 0.7, 4.0, SMALL - 0.01, SMALL, 30.0, LARGE - 0.01, LARGE, 5e3, 1e6, 3e8])
def test_numbers_are_those_of_the_rate(rate: float) -> None:
    values = draws(dist.Poisson(rate), 200_000)
    exact = scipy.stats.poisson(float(np.float32(rate)))
    assert is_distributed_as(values, exact)
    if rate < 1000:
        # Each number by itself, and all beyond together: the tails too.
        beyond = int(exact.isf(1e-4))
        counts = np.bincount(np.minimum(values, beyond).astype(int), minlength=beyond + 1)
        expected = 200_000 * np.append(exact.pmf(np.arange(beyond)), exact.sf(beyond - 1))
        enough = expected > 5
        observed = np.append(counts[enough], counts[~enough].sum())
        expected = np.append(expected[enough], expected[~enough].sum())
        assert scipy.stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-3


def test_rare_events_are_as_rare_as_they_should_be() -> None:
    """The tail of a small rate, where one minus the distribution function would have no digits left."""
    keys = jax.vmap(lambda l: particle_key(WORDS, l))(jnp.arange(4_000_000))
    values = np.asarray(jax.jit(jax.vmap(lambda key: poisson(key, jnp.float32(0.004))))(keys))
    expected = len(values) * scipy.stats.poisson(0.004).sf(1)
    assert abs((values > 1).sum() - expected) < 4.5 * np.sqrt(expected)


def test_each_rate_of_a_batch_has_its_own_numbers() -> None:
    rates = jnp.array([[0.3, 20.0, 7.0], [400.0, 1.0, 12.0]])
    values = draws(dist.Poisson(rates).to_event(2), 20_000)
    for (i, j), rate in np.ndenumerate(np.asarray(rates, float)):
        assert is_distributed_as(values[:, i, j], scipy.stats.poisson(rate))
    between = np.corrcoef(values.reshape(20_000, 6).T) - np.eye(6)
    assert np.abs(between).max() < 4.5 / np.sqrt(20_000)


def test_with_double_precision_and_with_keys_of_jax() -> None:
    with jax.enable_x64(True):
        for rate in (0.7, 30.0, 1e12):
            keys = jax.random.split(jax.random.key(3), 20_000)
            values = jax.vmap(lambda key, rate=rate: draw(dist.Poisson(rate), key))(keys)
            assert values.dtype == jnp.int64
            assert is_distributed_as(np.asarray(values, float), scipy.stats.poisson(rate))


@pytest.mark.parametrize(
    ("distribution", "exact"),
    [
        (dist.NegativeBinomial2(6.0, 2.5), scipy.stats.nbinom(2.5, 2.5 / 8.5)),
        (dist.NegativeBinomialProbs(3.0, 0.3), scipy.stats.nbinom(3.0, 0.7)),
        (dist.NegativeBinomialLogits(40.0, 1.0), scipy.stats.nbinom(40.0, 1 / (1 + np.e))),
        (dist.GammaPoisson(0.4, 0.1), scipy.stats.nbinom(0.4, 0.1 / 1.1)),
    ],
)
def test_negative_binomials(distribution: Any, exact: Any) -> None:
    assert is_distributed_as(draws(distribution, 50_000), exact)


def test_rates_that_are_none_give_no_number_and_end() -> None:
    rates, most = jnp.array([jnp.nan, -1.0, jnp.inf, 3e9, 0.0, -0.0]), jnp.iinfo(jnp.int32).max - 1
    np.testing.assert_array_equal(poisson(particle_key(WORDS, 0), rates), [-1, -1, most, most, 0, 0])


def test_no_gradient_flows_through_a_number_of_events() -> None:
    slope = jax.grad(lambda r: draw(dist.Poisson(r), particle_key(WORDS, 1)).astype(float))(3.0)
    assert float(slope) == 0
