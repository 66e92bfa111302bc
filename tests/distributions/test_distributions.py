"""Distributions of NumPyro, of other libraries, and of one's own."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import steelyard as sy
from tests.running import KEY, run, universal

MATRIX = jnp.array([[1.0, 0.3], [0.3, 2.0]])
SHAPED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "batch": (dist.Normal(jnp.zeros((2, 3)), 1.0), (2, 3)),
    "independent": (dist.Normal(jnp.zeros((2, 3)), 1.0).to_event(1), (2, 3)),
    "expanded": (dist.Gamma(2.0, 1.0).expand([4]), (4,)),
    "multivariate": (dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=MATRIX), (2,)),
    "batch of multivariate": (dist.MultivariateNormal(jnp.zeros((5, 2)), covariance_matrix=MATRIX), (5, 2)),
    "simplex": (dist.Dirichlet(jnp.array([0.5, 1.0, 4.0])), (3,)),
    "discrete batch": (dist.Categorical(logits=jnp.zeros((4, 3))), (4,)),
    "mixture": (
        dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(jnp.array([-1.0, 2.0]), 0.5)),
        (),
    ),
}


@pytest.mark.parametrize("name", SHAPED)
def test_the_density_of_one_particle_is_one_number(name: str) -> None:
    distribution, shape = SHAPED[name]
    out = run(lambda s: s.sample("z", distribution), particles=5)
    assert out.trace["z"].shape == (5, *shape)
    expected = [float(jnp.sum(distribution.log_prob(z))) for z in out.trace["z"]]
    np.testing.assert_allclose(out.log_density["z"], expected, rtol=1e-4, atol=1e-5)
    # Reused, the same value has the same density: no draw is taken to be outside of the support.
    again = run(lambda s: s.sample("z", distribution), particles=5, given=out.trace)
    np.testing.assert_allclose(again.log_weight, expected, rtol=1e-4, atol=1e-5)


OUTSIDE: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "Uniform": (dist.Uniform(-1.0, 2.0), [-1.0, 0.3, 2.0], [-1.01, 2.5, jnp.inf]),
    "HalfNormal": (dist.HalfNormal(1.5), [0.1, 3.0], [-0.1, -5.0]),
    "LogNormal": (dist.LogNormal(0.0, 1.0), [0.1, 3.0], [-0.1, -5.0]),
    "Beta": (dist.Beta(2.0, 3.0), [0.1, 0.9], [-0.2, 1.5]),
    "TruncatedNormal": (dist.TruncatedNormal(0.0, 1.0, low=0.5), [0.6, 2.0], [0.4, -3.0]),
    "Categorical": (dist.Categorical(jnp.array([0.2, 0.3, 0.5])), [0, 1, 2], [-1, 3, 7]),
    "Bernoulli": (dist.Bernoulli(0.3), [0, 1], [-1, 2]),
    "Poisson": (dist.Poisson(2.0), [0, 3], [-1, -2]),
    "Binomial": (dist.Binomial(4, 0.3), [0, 4], [-1, 5]),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_outside_of_the_support_the_density_is_zero(name: str) -> None:
    distribution, inside, outside = OUTSIDE[name]

    def model(s: sy.State) -> None:
        s.sample("z", distribution)

    density = jax.jit(lambda z: sy.log_density(model, {"z": z}))
    for value in inside:
        np.testing.assert_allclose(density(value), distribution.log_prob(jnp.asarray(value)), rtol=1e-5, atol=1e-5)
    for value in outside:
        assert density(value) == -np.inf
        assert sy.log_density(lambda s, x: s.observe("x", distribution, x), {}, value) == -np.inf
    if isinstance(inside[0], float):
        gradients = [jax.grad(density)(value) for value in [*inside, *outside]]
        assert np.isfinite(gradients).all()
        expected = [jax.grad(distribution.log_prob)(x) for x in inside]
        np.testing.assert_allclose(gradients[: len(inside)], expected, rtol=1e-5, atol=1e-5)


def test_one_number_outside_makes_the_whole_event_impossible() -> None:
    box = dist.Uniform(jnp.zeros(3), jnp.array([1.0, 2.0, 3.0])).to_event(1)
    density = jax.jit(lambda z: sy.log_density(lambda s: s.sample("z", box), {"z": z}))
    np.testing.assert_allclose(density(jnp.array([0.9, 1.9, 2.9])), -np.log(6.0), rtol=1e-5)
    assert density(jnp.array([0.9, 2.1, 2.9])) == -np.inf
    assert np.isfinite(jax.grad(lambda z: density(z))(jnp.array([0.9, 2.1, 2.9]))).all()


@pytest.mark.parametrize("x", [1.3, np.float32(1.3), np.array(1.3), jnp.array(1.3)], ids=lambda x: type(x).__name__)
def test_observed_numbers_of_any_kind_with_bounds_that_were_sampled(x: Any) -> None:
    def model(s: sy.State) -> None:
        low = s.sample("low", dist.Normal(-5.0, 0.1))
        s.observe("x", dist.Uniform(low, 4.0), x)

    out = run(model, particles=3)
    np.testing.assert_allclose(out.log_weight, -np.log(4.0 - np.asarray(out.trace["low"])), rtol=1e-5)


@dataclass(frozen=True)
class Exponential:
    """The least that a distribution must have."""

    rate: Any

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.exponential(key) / self.rate

    def log_prob(self, value: Any) -> Any:
        return jnp.log(self.rate) - self.rate * value


@dataclass(frozen=True)
class Seeded:
    """In the manner of TFP and Distrax: shapes and names come first, the key is called seed."""

    rate: Any

    def sample(self, sample_shape: tuple[int, ...] = (), *, seed: Any = None, name: str = "sample") -> jax.Array:
        return jax.random.exponential(seed, sample_shape) / self.rate

    def log_prob(self, value: Any, name: str = "log_prob") -> Any:
        return jnp.log(self.rate) - self.rate * value


def functions(rate: Any) -> SimpleNamespace:
    return SimpleNamespace(sample=Exponential(rate).sample, log_prob=Exponential(rate).log_prob)


@pytest.mark.parametrize("kind", [Exponential, Seeded, functions])
def test_distributions_of_ones_own(kind: Any) -> None:
    def model(s: sy.State) -> jax.Array:
        rate = s.sample("rate", kind(2.0))
        s.observe("x", kind(rate), 0.7)
        return rate

    def guide(s: sy.State) -> None:
        s.sample("rate", kind(1.2))

    out = run(sy.propose(model, guide), particles=500)
    rate = np.asarray(out.trace["rate"])
    assert scipy.stats.kstest(rate, "expon", args=(0, 1 / 1.2)).pvalue > 1e-4
    expected = np.log(2.0) - 2 * rate + np.log(rate) - 0.7 * rate - np.log(1.2) + 1.2 * rate
    np.testing.assert_allclose(out.log_weight, expected, rtol=1e-4, atol=1e-5)
    one_by_one = universal(sy.propose(model, guide), particles=3)
    np.testing.assert_allclose(one_by_one.log_weight, expected[:3], rtol=1e-4, atol=1e-5)


def test_a_validating_distribution_does_not_complain_about_proposals_outside() -> None:
    """With `validate_args` NumPyro warns of values outside of the support; warnings are errors here."""

    def model(s: sy.State) -> None:
        s.sample("z", dist.HalfNormal(1.0, validate_args=True))

    out = sy.evaluate(model, KEY, particles=2, given={"z": jnp.array([-1.0, 0.5])})
    assert np.isneginf(out.log_weight).tolist() == [True, False]


@pytest.mark.parametrize("form", ["probs", "logits"])
def test_categories_are_drawn_with_their_probabilities(form: str) -> None:
    probabilities = np.array([0.0, 0.1, 0.0, 0.55, 0.35, 0.0])
    parameter = jnp.asarray(probabilities if form == "probs" else np.log(np.maximum(probabilities, 1e-200)) + 3.0)
    out = run(lambda s: s.sample("z", dist.Categorical(**{form: parameter})), particles=20_000)
    counts = np.bincount(np.asarray(out.trace["z"]), minlength=6)
    assert (counts[probabilities == 0] == 0).all()
    drawn = probabilities > 0
    assert scipy.stats.chisquare(counts[drawn], 20_000 * probabilities[drawn]).pvalue > 1e-4
