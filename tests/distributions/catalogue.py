"""Every distribution of NumPyro, at ordinary and at extreme parameters, and each of its wrappers.

The cases of a name have the same shapes, so that they share one compiled function. The first is ordinary.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import transforms

COVARIANCE = jnp.array([[1.0, 0.3], [0.3, 2.0]])
CHOLESKY = jnp.array([[1.0, 0.0], [0.3, 1.4]])
CORRELATION = jnp.array([[1.0, 0.4], [0.4, 1.0]])
NEIGHBOURS = jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
ZERO, PAIR, THREE = jnp.zeros(2), jnp.array([2.0, 3.0]), jnp.array([0.5, 1.0, 4.0])
PROBS, HALVES = jnp.array([0.2, 0.3, 0.5]), jnp.array([0.3, 0.7])

EXCLUDED = {
    "Distribution": "the base class",
    "ImproperUniform": "cannot be drawn from; see test_improper.py",
    "IntervalCensoredDistribution": "draws numbers, but has densities of intervals: it can only be observed",
    "GaussianCopulaBeta": "draws only where TensorFlow Probability is installed",
    "biject_to": "no distribution",
    "kl_divergence": "no distribution",
}


class Reflected(dist.Normal):
    """A distribution with its own way to draw."""

    support = dist.constraints.positive

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return jnp.abs(super().sample(key, sample_shape))

    def log_prob(self, value: Any) -> Any:
        return super().log_prob(value) + jnp.log(2.0)


def drift(x: Any, t: Any) -> Any:
    return -x, 0.5 * jnp.ones_like(x)


def each(f: Callable[..., Any], *parameters: Any) -> list[Any]:
    """Return a distribution for each tuple of parameters, all of them as arrays."""
    rows = [p if isinstance(p, tuple) else (p,) for p in parameters]
    return [f(*(jnp.asarray(x) if isinstance(x, float) else x for x in row)) for row in rows]


def cases() -> dict[str, list[Any]]:
    d = dist
    gamma_poissons = (2.0, 3.0), (0.01, 1.0), (100.0, 0.1)
    return {
        "AsymmetricLaplace": each(d.AsymmetricLaplace, (0.5, 2.0, 0.7), (0.5, 1e-10, 20.0)),
        "AsymmetricLaplaceQuantile": each(d.AsymmetricLaplaceQuantile, (0.5, 2.0, 0.3)),
        "BernoulliLogits": each(d.BernoulliLogits, -2.0, 90.0, -90.0),
        "BernoulliProbs": each(d.BernoulliProbs, 0.3, 1e-6, 0.999999),
        "Beta": each(d.Beta, (2.0, 3.0), (0.01, 0.02), (1e4, 0.1), (1e-3, 1e3)),
        "BetaBinomial": each(d.BetaBinomial, (2.0, 3.0, 10), (0.01, 0.02, 10)),
        "BetaNegativeBinomial": each(d.BetaNegativeBinomial, (3.0, 4.0, 5.0), (0.3, 4.0, 0.5)),
        "BetaProportion": each(d.BetaProportion, (0.3, 5.0), (0.3, 0.02)),
        "BinomialLogits": each(d.BinomialLogits, (0.3, 7), (-40.0, 7), (40.0, 7)),
        "BinomialProbs": each(d.BinomialProbs, (0.3, 7), (1e-6, 7)),
        "CAR": each(lambda c: d.CAR(ZERO[:1], c, 1.0, NEIGHBOURS), 0.5, 0.99),
        "CategoricalLogits": [d.CategoricalLogits(x) for x in (THREE, 100 * THREE)],
        "CategoricalProbs": [d.CategoricalProbs(x) for x in (PROBS, jnp.array([0.0, 1e-8, 1.0]))],
        "Cauchy": each(d.Cauchy, (0.0, 1.0), (0.0, 1e10), (3.0, 1e-10)),
        "Chi2": each(d.Chi2, 3.0, 0.01, 1e4),
        "CirculantNormal": [d.CirculantNormal(jnp.zeros(4), jnp.array([2.0, 0.5, 0.1, 0.5]))],
        "Dagum": each(d.Dagum, (2.0, 1.0, 3.0), (0.05, 1.0, 0.1)),
        "Delta": each(d.Delta, 1.5, -1e30),
        "Dirichlet": [d.Dirichlet(x) for x in (THREE, THREE / 100, THREE * 1e4)],
        "DirichletMultinomial": [d.DirichletMultinomial(x, 10) for x in (THREE, THREE / 100)],
        "DiscreteUniform": [d.DiscreteUniform(2, 7)],
        "DoublyTruncatedPowerLaw": each(d.DoublyTruncatedPowerLaw, (-1.5, 1.0, 4.0), (-30.0, 1.0, 4.0)),
        "EulerMaruyama": [d.EulerMaruyama(jnp.linspace(0.0, 1.0, 5), drift, d.Normal(0.0, 1.0))],
        "ExpandedDistribution": each(lambda a: d.Gamma(a, 1.0).expand([3]), 2.0, 0.01),
        "Exponential": each(d.Exponential, 2.0, 1e30, 1e-30),
        "FoldedDistribution": each(lambda a: d.FoldedDistribution(d.Normal(a, 1.0)), 1.0, 30.0),
        "Gamma": each(d.Gamma, (2.0, 3.0), (0.01, 1.0), (1e-3, 1e5), (1e4, 1.0), (0.05, 1e30)),
        "GammaPoisson": each(d.GammaPoisson, *gamma_poissons),
        "GaussianCopula": [d.GaussianCopula(d.Normal(2.0, 3.0), correlation_matrix=CORRELATION)],
        "GaussianRandomWalk": each(lambda s: d.GaussianRandomWalk(s, num_steps=4), 0.5, 1e-20),
        "GaussianStateSpace": [d.GaussianStateSpace(3, COVARIANCE / 4, covariance_matrix=COVARIANCE)],
        "GeometricLogits": each(d.GeometricLogits, 0.3, -40.0, 40.0),
        "GeometricProbs": each(d.GeometricProbs, 0.3, 1e-6, 1e-12),
        "Gompertz": each(d.Gompertz, (2.0, 1.0), (1e-5, 1e5), (1e5, 1e-3)),
        "Gumbel": each(d.Gumbel, (0.0, 1.0), (1.0, 1e20)),
        "HalfCauchy": each(d.HalfCauchy, 2.0, 1e-20, 1e15),
        "HalfNormal": each(d.HalfNormal, 2.0, 1e-37),
        "HurdleGamma": each(d.HurdleGamma, (0.3, 2.0, 1.0), (0.3, 0.01, 1.0)),
        "HurdleLogits": each(lambda g: d.HurdleLogits(d.LogNormal(0.0, 1.0), g), 0.3, -20.0),
        "HurdleLogNormal": each(d.HurdleLogNormal, (0.3, 0.0, 1.0), (0.3, 0.0, 100.0)),
        "HurdlePoisson": each(d.HurdlePoisson, (0.3, 2.0)),
        "HurdleProbs": each(lambda g: d.HurdleProbs(d.Gamma(2.0, 1.0), g), 0.3, 1e-6),
        "Independent": each(lambda a: d.Independent(d.Gamma(a, jnp.ones((2, 3))), 1), 2.0, 0.01),
        "InverseGamma": each(d.InverseGamma, (2.0, 3.0), (0.01, 1.0), (1e3, 1.0)),
        "InverseWishart": each(lambda n: d.InverseWishart(n, COVARIANCE), 4.0, 40.0),
        "InverseWishartCholesky": each(lambda n: d.InverseWishartCholesky(n, COVARIANCE), 4.0, 40.0),
        "Kumaraswamy": each(d.Kumaraswamy, (2.0, 3.0), (0.01, 0.02), (0.01, 5.0), (5.0, 0.01)),
        "Laplace": each(d.Laplace, (0.0, 1.0), (0.0, 1e20)),
        "LeftCensoredDistribution": [d.LeftCensoredDistribution(d.Normal(0.0, 1.0))],
        "LeftTruncatedDistribution": each(lambda a: d.LeftTruncatedDistribution(d.Cauchy(), a), 0.5, -20.0),
        "LeftTruncatedGamma": each(lambda a: d.LeftTruncatedGamma(d.Gamma(a, 1.0), low=0.5), 2.0, 20.0),
        "Levy": each(d.Levy, (0.0, 1.0)),
        "LKJ": each(lambda c: d.LKJ(3, c), 1.0, 0.5, 1e4),
        "LKJCholesky": each(lambda c: d.LKJCholesky(3, c), 1.0, 0.05, 1e4),
        "Logistic": each(d.Logistic, (0.0, 1.0), (1.0, 1e20)),
        "LogNormal": each(d.LogNormal, (0.0, 1.0), (0.0, 50.0)),
        "LogUniform": each(d.LogUniform, (1.0, 3.0), (1e-30, 1e30), (3.0, 3.00001)),
        "LowerTruncatedPowerLaw": each(d.LowerTruncatedPowerLaw, (-2.5, 1.0), (-1.01, 1.0)),
        "LowRankMultivariateNormal": [d.LowRankMultivariateNormal(ZERO, jnp.ones((2, 1)), PAIR)],
        "MaskedDistribution": each(lambda a: d.Gamma(a, jnp.ones(3)).mask(NEIGHBOURS[1] > 0), 2.0, 0.01),
        "MatrixNormal": [d.MatrixNormal(jnp.zeros((2, 2)), CHOLESKY, CHOLESKY)],
        "MixtureGeneral": each(
            lambda a: d.MixtureGeneral(d.Categorical(HALVES), [d.Gamma(a, 1.0), d.LogNormal(1.0)]), 2.0, 0.01
        ),
        "MixtureSameFamily": each(lambda a: d.MixtureSameFamily(d.Categorical(HALVES), d.Beta(a * PAIR, a)), 1.0, 0.01),
        "MultinomialLogits": [d.MultinomialLogits(x, 10) for x in (PROBS, -20 * PROBS)],
        "MultinomialProbs": [d.MultinomialProbs(x, 10) for x in (PROBS, jnp.array([0.0, 1e-7, 1.0]))],
        "MultivariateNormal": [d.MultivariateNormal(ZERO, scale_tril=x) for x in (CHOLESKY, 1e-15 * CHOLESKY)],
        "MultivariateStudentT": each(lambda n: d.MultivariateStudentT(n, ZERO, CHOLESKY), 3.0, 0.02, 1e3),
        "NegativeBinomial2": each(d.NegativeBinomial2, (2.0, 3.0), (2.0, 0.01)),
        "NegativeBinomialLogits": each(d.NegativeBinomialLogits, (3.0, 0.3), (3.0, 20.0)),
        "NegativeBinomialProbs": each(d.NegativeBinomialProbs, (3.0, 0.3), (0.01, 0.3)),
        "Normal": each(d.Normal, (0.0, 1.0), (0.0, 1e-30), (3.0, 1e30)),
        "OrderedLogistic": each(lambda a: d.OrderedLogistic(a, jnp.array([-1.0, 0.0, 2.0])), 0.3, 30.0),
        "Pareto": each(d.Pareto, (1.0, 2.0), (1.0, 0.01), (1.0, 1e6)),
        "Poisson": each(d.Poisson, 2.0, 1e-6, 1e3),
        "ProjectedNormal": [d.ProjectedNormal(x) for x in (PAIR, 10 * PAIR)],
        "RelaxedBernoulliLogits": each(d.RelaxedBernoulliLogits, (0.5, 0.3), (0.01, 0.3)),
        "RightCensoredDistribution": each(lambda r: d.RightCensoredDistribution(d.Exponential(r)), 1.0, 1e30),
        "RightTruncatedDistribution": each(lambda b: d.RightTruncatedDistribution(d.Normal(), b), 0.5, -3.0),
        "RightTruncatedGamma": each(lambda a: d.RightTruncatedGamma(d.Gamma(a, 1.0), high=0.5), 2.0, 0.01),
        "SineBivariateVonMises": [d.SineBivariateVonMises(0.0, 0.1, 2.0, 3.0, 0.5)],
        "SineSkewed": [d.SineSkewed(d.VonMises(ZERO, PAIR).to_event(1), PAIR / 10)],
        "SoftLaplace": each(d.SoftLaplace, (0.0, 1.0), (1.0, 1e20)),
        "StudentT": each(d.StudentT, (3.0, 0.0, 1.0), (0.02, 0.0, 1.0), (0.02, 0.0, 1e-5), (1e3, 0.0, 1.0)),
        "TransformedDistribution": each(
            lambda a: d.TransformedDistribution(d.Beta(a, a), transforms.AffineTransform(5.0, 1e-3)), 2.0, 0.01
        ),
        "TruncatedPolyaGamma": [d.TruncatedPolyaGamma()],
        "TwoSidedTruncatedDistribution": each(lambda a: d.TwoSidedTruncatedDistribution(d.Normal(), a, 2.0), 0.5, 1.99),
        "TwoSidedTruncatedGamma": each(lambda a: d.TwoSidedTruncatedGamma(d.Gamma(a, 1.0), 0.5, 2.0), 2.0, 0.01),
        "Uniform": each(d.Uniform, (-1.0, 2.0), (3.0, 3.000001), (-1e30, 1e30)),
        "Unit": each(d.Unit, 0.3),
        "VonMises": each(d.VonMises, (0.5, 2.0), (3.1, 1e3)),
        "Weibull": each(d.Weibull, (1.0, 2.0), (1.0, 0.01), (1e20, 0.1)),
        "Wishart": each(lambda n: d.Wishart(n, COVARIANCE), 4.0, 100.0),
        "WishartCholesky": each(lambda n: d.WishartCholesky(n, COVARIANCE), 4.0, 1.01),
        "ZeroInflatedLogits": each(lambda g: d.ZeroInflatedLogits(d.Poisson(2.0), g), 0.3, -30.0),
        "ZeroInflatedPoisson": each(d.ZeroInflatedPoisson, (0.3, 2.0)),
        "ZeroInflatedProbs": each(lambda g: d.ZeroInflatedProbs(d.DiscreteUniform(2, 5), g), 0.3),
        "ZeroSumNormal": each(lambda s: d.ZeroSumNormal(s, (3,)), 1.0, 1e-10),
    }


def made_by_functions() -> dict[str, list[Any]]:
    """What the functions of NumPyro make that choose among these."""
    d = dist
    return {
        "Bernoulli": each(d.Bernoulli, 0.3),
        "Binomial": each(d.Binomial, (7, 0.3)),
        "Categorical": [d.Categorical(PROBS)],
        "Geometric": each(d.Geometric, 0.3),
        "HurdleDistribution": each(lambda g: d.HurdleDistribution(d.Poisson(2.0), gate=g), 0.3),
        "HurdleNegativeBinomial2": each(d.HurdleNegativeBinomial2, (0.3, 2.0, 1.5)),
        "Mixture": each(lambda a: d.Mixture(d.Categorical(HALVES), d.Gamma(a * PAIR, 1.0)), 1.0, 0.01),
        "Multinomial": [d.Multinomial(10, PROBS)],
        "NegativeBinomial": each(d.NegativeBinomial, (3.0, 0.3)),
        "RelaxedBernoulli": each(d.RelaxedBernoulli, (2.0, 0.3)),
        "TruncatedCauchy": each(lambda a: d.TruncatedCauchy(0.0, 1.0, low=a, high=20.0), 0.5, 19.9),
        "TruncatedDistribution": each(lambda a: d.TruncatedDistribution(d.Laplace(), high=a), 0.5, -20.0),
        "TruncatedGamma": each(lambda a: d.TruncatedGamma(2.0, a, low=0.5), 1.0),
        "TruncatedNormal": each(lambda a: d.TruncatedNormal(0.0, 1.0, low=a, high=3.01), -1.0, 3.0),
        "ZeroInflatedDistribution": each(lambda g: d.ZeroInflatedDistribution(d.Poisson(2.0), gate=g), 0.3),
        "ZeroInflatedNegativeBinomial2": each(lambda g: d.ZeroInflatedNegativeBinomial2(2.0, 1.5, gate=g), 0.3),
    }


def wrapped() -> dict[str, list[Any]]:
    """More of what can be made of distributions, where the parts differ in their supports."""
    d, affine = dist, transforms.AffineTransform
    half = d.Categorical(HALVES)
    both = d.constraints.real
    return {
        "of an expanded event": each(lambda a: d.Gamma(a, 1.0).expand([2, 3]).to_event(1).mask(ZERO > 1), 2.0, 0.01),
        "of a masked event": each(lambda a: d.Beta(a, 1.0).mask(True).expand([3]).to_event(1), 2.0, 0.01),
        "shifted": each(lambda a: d.TransformedDistribution(d.Uniform(0.0, 1.0), affine(5.0, a)), 1.0, 1e-4),
        "upside down": each(lambda a: d.TransformedDistribution(d.Exponential(1.0), affine(5.0, -a)), 1.0, 1e-4),
        "logarithm": each(lambda a: d.TransformedDistribution(d.Gamma(a), transforms.ExpTransform().inv), 2.0, 0.01),
        "squashed": each(
            lambda a: d.TransformedDistribution(d.Normal(0.0, a), transforms.SigmoidTransform()), 1.0, 50.0
        ),
        "broken sticks": each(
            lambda a: d.TransformedDistribution(d.Normal(ZERO, a).to_event(1), transforms.StickBreakingTransform()),
            1.0,
            30.0,
        ),
        "Levy near its edge": each(d.Levy, (1.0, 1e-10)),
        "two intervals": [d.MixtureGeneral(half, [d.Uniform(0.0, 1.0), d.Uniform(2.0, 3.0)])],
        "half of a line": [d.MixtureGeneral(half, [d.Normal(), d.HalfNormal(1.0)], support=both)],
        "spike and slab": [d.MixtureGeneral(half, [d.Delta(0.0), d.Normal()], support=both)],
        "folded interval": [d.FoldedDistribution(d.Uniform(-1.0, 2.0))],
        "own sample": each(Reflected, (0.0, 1.0), (0.0, 1e-37)),
        "event of own sample": each(lambda s: Reflected(ZERO, s).to_event(1), 1.0, 1e-37),
    }
