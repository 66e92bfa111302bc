"""Draws that are made here, next to the distributions that they are of."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats

from steelyard.compiler.draws import draw, is_normal
from steelyard.compiler.randomness import particle_key, scattered

WORDS = scattered(jax.random.key(3))


def draws(distribution: Any, particles: int) -> Any:
    return jax.vmap(lambda l: draw(distribution, particle_key(WORDS, l)))(jnp.arange(particles))


@pytest.mark.parametrize("shape", [(), (3,), (15,), (16,), (2, 2, 5), (0,)])
@pytest.mark.parametrize("x64", [False, True])
def test_normals_are_those_of_numpyro(shape: tuple[int, ...], x64: bool) -> None:
    with jax.enable_x64(x64):
        location, scale = jnp.linspace(-2.0, 3.0, int(np.prod(shape))).reshape(shape), jnp.full(shape, 0.7)
        key = particle_key(WORDS, 4)

        def ours(location: Any, scale: Any) -> Any:
            return draw(dist.Normal(location, scale).to_event(len(shape)), key)

        def theirs(location: Any, scale: Any) -> Any:
            return dist.Normal(location, scale).sample(key)

        assert ours(location, scale).dtype == theirs(location, scale).dtype
        np.testing.assert_array_equal(ours(location, scale), theirs(location, scale))
        for argument in (0, 1):
            slopes = (jax.jacobian(sample, argument)(location, scale) for sample in (ours, theirs))
            np.testing.assert_array_equal(*slopes)


@pytest.mark.parametrize("shape", [(), (3,), (16,)])
def test_half_normals_are_those_of_numpyro_and_made_of_normals(shape: tuple[int, ...]) -> None:
    distribution = dist.HalfNormal(jnp.linspace(0.3, 2.0, int(np.prod(shape))).reshape(shape))
    key = particle_key(WORDS, 4)
    np.testing.assert_array_equal(draw(distribution, key), distribution.sample(key))
    assert is_normal(distribution) and is_normal(distribution.to_event(len(shape)))


def test_normals_of_many_particles_are_normal() -> None:
    values = np.asarray(jax.jit(lambda: draws(dist.Normal(jnp.zeros(2), 2.0), 50_000))())
    assert scipy.stats.kstest(values.ravel() / 2, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(values.T)[0, 1]) < 4.5 / np.sqrt(50_000)


def seven(self: Any, key: Any, sample_shape: Any = ()) -> Any:
    return jnp.full(sample_shape + self.batch_shape + self.event_shape, 7.0)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (dist.Normal, (0.0, 1.0)),
        (dist.Gamma, (2.0, 1.0)),
        (dist.Chi2, (2.0,)),
        (dist.Poisson, (2.0,)),
        (dist.GammaPoisson, (2.0, 1.0)),
        (dist.CategoricalProbs, (np.full(9, 1 / 9),)),
        (dist.CategoricalLogits, (np.zeros(9),)),
        (dist.StudentT, (3.0,)),
        (dist.LogNormal, (0.0, 1.0)),
        (dist.InverseGamma, (2.0, 1.0)),
        (dist.HurdleGamma, (0.3, 2.0)),
        (dist.Independent, (dist.Normal(np.zeros(3), 1.0), 1)),
        (dist.Independent, (dist.Gamma(np.ones(3), 1.0), 1)),
        (dist.ExpandedDistribution, (dist.Gamma(1.0, 1.0), (3,))),
        (dist.TransformedDistribution, (dist.Normal(), dist.transforms.ExpTransform())),
    ],
)
def test_what_is_derived_from_a_distribution_draws_as_it_says(kind: Any, parameters: Any) -> None:
    derived = type("Derived", (kind,), {"sample": seven})(*parameters)
    assert bool(jnp.all(draws(derived, 3) == 7))
    own = kind(*parameters)
    own.sample = lambda key: jnp.full(own.shape(), 7.0)
    assert bool(jnp.all(draws(own, 3) == 7))
    if derived.batch_shape:
        assert bool(jnp.all(draws(derived.to_event(1), 3) == 7))
    if not derived.event_shape:
        shifted = dist.TransformedDistribution(derived, dist.transforms.AffineTransform(1.0, 2.0))
        assert bool(jnp.all(draws(shifted, 3) == 15)) or isinstance(derived, dist.TransformedDistribution)


def test_what_is_derived_without_a_way_to_draw_draws_as_its_parent() -> None:
    derived = type("Derived", (dist.Gamma,), {})(2.0, 1.0)
    np.testing.assert_array_equal(draws(derived, 10), draws(dist.Gamma(2.0, 1.0), 10))


@pytest.mark.parametrize("concentration", [0.2, 0.7, 1.0, 2.5, 40.0, 1e4])
def test_gammas_are_distributed_as_gammas(concentration: float) -> None:
    values = np.asarray(draws(dist.Gamma(concentration, 3.0), 20_000), float)
    assert scipy.stats.kstest(values, scipy.stats.gamma(concentration, scale=1 / 3.0).cdf).pvalue > 1e-3


def test_gammas_of_many_parameters_are_independent() -> None:
    concentration = jnp.array([[0.4, 6.0, 1.0], [20.0, 0.9, 3.0]])
    values = np.asarray(draws(dist.Gamma(concentration, jnp.array([1.0, 2.0, 0.5])).to_event(2), 20_000))
    assert values.shape == (20_000, 2, 3)
    for (i, j), a in np.ndenumerate(np.asarray(concentration)):
        exact = scipy.stats.gamma(a, scale=1 / [1.0, 2.0, 0.5][j])
        assert scipy.stats.kstest(values[:, i, j], exact.cdf).pvalue > 1e-3
    between = np.corrcoef(values.reshape(20_000, 6).T) - np.eye(6)
    assert np.abs(between).max() < 4.5 / np.sqrt(20_000)


@pytest.mark.parametrize("concentration", [0.6, 1.0, 4.0])
def test_the_gradient_of_a_gamma_moves_its_quantiles(concentration: float) -> None:
    """A draw is the quantile function at a fixed level: its derivative by the concentration is known."""
    key = particle_key(WORDS, 5)
    value, gradient = jax.value_and_grad(lambda a: draw(dist.Gamma(a, 1.0), key))(concentration)
    level = scipy.special.gammainc(concentration, float(value))
    step = 1e-4
    after, before = (scipy.special.gammaincinv(concentration + h, level) for h in (step, -step))
    np.testing.assert_allclose(gradient, (after - before) / (2 * step), rtol=1e-2)


def test_a_gamma_scales_with_its_rate() -> None:
    key = particle_key(WORDS, 2)
    value, gradient = jax.value_and_grad(lambda r: draw(dist.Gamma(3.0, r), key))(2.0)
    np.testing.assert_allclose(gradient, -value / 2.0, rtol=1e-5)


@pytest.mark.parametrize("concentration", [0.0, -1.0, jnp.inf, jnp.nan])
def test_a_concentration_that_is_none_gives_no_number(concentration: float) -> None:
    """And above all it ends."""
    with dist.distribution.validation_enabled(False):
        assert bool(jnp.isnan(draw(dist.Gamma(concentration, 1.0), particle_key(WORDS, 0))))


def test_a_chi_squared_is_a_gamma() -> None:
    values = np.asarray(draws(dist.Chi2(5.0), 20_000), float)
    assert scipy.stats.kstest(values, scipy.stats.chi2(5.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("by", ["probs", "logits"])
def test_categories_come_as_often_as_their_probabilities(by: str) -> None:
    probabilities = np.array([0.5, 0.0, 0.2, 0.3])
    parameters = jnp.log(probabilities + 1e-30) if by == "logits" else jnp.asarray(probabilities)
    values = draws(dist.Categorical(**{by: parameters}), 40_000)
    counts = np.bincount(np.asarray(values), minlength=4)
    assert counts[1] == 0
    possible = probabilities > 0
    assert scipy.stats.chisquare(counts[possible], 40_000 * probabilities[possible]).pvalue > 1e-3


@pytest.mark.parametrize("categories", [3, 100])
def test_categories_that_are_expanded_are_drawn_without_a_table(categories: int) -> None:
    weights = np.arange(1.0, categories + 1) ** 2
    rows = jnp.asarray(np.stack([weights, weights[::-1]])[:, None] / weights.sum())
    expanded = dist.Categorical(rows).expand([4, 2, 5]).to_event(1)
    drawn = np.asarray(draws(expanded, 500))
    assert drawn.shape == (500, 4, 2, 5)
    for row in range(2):
        expected = rows[row, 0] @ np.arange(categories), np.sqrt(rows[row, 0] @ np.arange(categories) ** 2)
        assert abs(drawn[:, :, row].mean() - expected[0]) < 5 * expected[1] / 100
    # All of them are drawn on their own.
    assert len(np.unique(drawn.reshape(500, -1), axis=1).T) == 40
    equations = str(jax.make_jaxpr(lambda: draw(dist.Categorical(rows[0, 0]).expand([1000]), particle_key(WORDS, 0)))())
    assert categories <= 32 or f"1000,{categories}]" not in equations


@pytest.mark.parametrize("by", ["probs", "logits"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_categories_of_probability_zero_are_never_drawn(by: str, batch: tuple[int, ...]) -> None:
    """A prefix sum of many numbers rises and falls by rounding."""
    number = 100_000
    possible = np.zeros(number, bool)
    possible[np.random.default_rng(0).choice(number, 900, replace=False)] = True
    possible[[0, -1]] = False
    weights = np.where(possible, np.random.default_rng(1).gamma(0.3, size=(*batch, number)) + 1e-9, 0.0)
    probabilities = jnp.asarray(weights / weights.sum(axis=-1, keepdims=True), jnp.float32)
    parameters = jnp.log(probabilities) if by == "logits" else probabilities
    count = 3000 // math.prod(batch)
    with dist.distribution.validation_enabled(False):
        values = jax.jit(lambda: draws(dist.Categorical(**{by: parameters}), count))()
    assert values.shape == (count, *batch)
    assert possible[np.asarray(values)].all()


def test_the_first_and_the_last_category() -> None:
    for index in (0, 4, 8):
        one = jnp.zeros(9).at[index].set(1.0)
        assert bool(jnp.all(draws(dist.Categorical(one), 200) == index))
