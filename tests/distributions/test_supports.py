"""Inside and outside of the support, of a distribution and of the parts that it is made of."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints, transforms

import steelyard as sy
from tests.running import KEY, run, universal

HALVES = dist.Categorical(jnp.array([0.3, 0.7]))
MASK = np.array([True, False, True])


def sampling(distribution: Any) -> Any:
    def model(s: sy.State) -> Any:
        return s.sample("z", distribution)

    return model


def density(distribution: Any) -> Any:
    return jax.jit(lambda z: sy.log_density(sampling(distribution), {"z": z}))


def shifted(base: Any, location: float, scale: float) -> Any:
    return dist.TransformedDistribution(base, transforms.AffineTransform(location, scale))


# A distribution, values with their exact log density, and values outside.
BOUNDED: dict[str, tuple[Any, dict[float, float], list[float]]] = {
    "shifted uniform": (shifted(dist.Uniform(0.0, 1.0), 2.0, 4.0), {2.0: -np.log(4), 5.9: -np.log(4)}, [1.9, 6.1]),
    "mirrored exponential": (shifted(dist.Exponential(1.0), 2.0, -1.0), {1.5: -0.5, -3.0: -5.0}, [2.1, 9.0]),
    "two transforms": (
        dist.TransformedDistribution(
            dist.Uniform(0.0, 1.0), [transforms.ExpTransform(), transforms.AffineTransform(1.0, 2.0)]
        ),
        {5.0: -np.log(4.0)},
        [2.9, 6.5, 0.5],
    ),
    "logarithm of a bounded": (
        dist.TransformedDistribution(dist.Uniform(1.0, 3.0), transforms.ExpTransform().inv),
        {0.5: 0.5 - np.log(2)},
        [-0.1, 1.2],
    ),
    "two intervals": (
        dist.MixtureGeneral(HALVES, [dist.Uniform(0.0, 1.0), dist.Uniform(2.0, 4.0)]),
        {0.5: np.log(0.3), 3.0: np.log(0.35)},
        [-0.5, 1.5, 4.5],
    ),
    "half of a line": (
        dist.MixtureGeneral(HALVES, [dist.Normal(), dist.LogNormal()], support=constraints.real),
        {-1.0: np.log(0.3) - 0.5 - 0.5 * np.log(2 * np.pi)},
        [],
    ),
    "mixture of shifted": (
        dist.MixtureSameFamily(HALVES, shifted(dist.Uniform(jnp.zeros(2), 1.0), 1.0, 2.0)),
        {2.0: -np.log(2)},
        [0.9, 3.1],
    ),
    "folded": (dist.FoldedDistribution(dist.Uniform(-1.0, 2.0)), {0.5: np.log(2 / 3), 1.5: -np.log(3)}, [-0.5, 2.5]),
    "truncated": (dist.TruncatedNormal(0.0, 1.0, high=0.0), {-1.0: np.log(2) - 0.5 - 0.5 * np.log(2 * np.pi)}, [0.1]),
    "log-uniform": (dist.LogUniform(1.0, np.e), {2.0: -np.log(2)}, [0.9, 2.8, -1.0]),
    "zero-inflated": (
        dist.ZeroInflatedDistribution(dist.DiscreteUniform(2, 5), gate=0.2),
        {0: np.log(0.2), 3: np.log(0.2)},
        [1, 6, -1],
    ),
    "hurdle": (
        dist.HurdleDistribution(dist.Exponential(1.0), gate=0.2),
        {0.0: np.log(0.2), 1.0: np.log(0.8) - 1},
        [-1.0],
    ),
    "expanded": (dist.Uniform(0.0, 2.0).expand([]).mask(True), {1.0: -np.log(2)}, [3.0]),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_the_density_is_zero_outside_of_every_part(name: str) -> None:
    distribution, inside, outside = BOUNDED[name]
    f = density(distribution)
    np.testing.assert_allclose([f(z) for z in inside], list(inside.values()), rtol=1e-5)
    assert [float(f(z)) for z in outside] == [-np.inf] * len(outside)
    for z in [*inside, *outside]:
        observed = sy.log_density(lambda s, z: s.observe("z", distribution, z), {}, z)
        np.testing.assert_allclose(observed, f(z), rtol=1e-6)
    if not distribution.is_discrete:
        assert np.isfinite([jax.grad(f)(float(z)) for z in inside]).all()
        assert [float(jax.grad(f)(float(z))) for z in outside] == [0.0] * len(outside)


@pytest.mark.parametrize("name", sorted(BOUNDED.keys() - {"hurdle", "half of a line"}))
def test_a_wide_proposal_finds_that_it_is_normalised(name: str) -> None:
    """A wrong support shows in the evidence, and in nothing else: log Z was 1.85 for 0."""
    distribution, _, _ = BOUNDED[name]
    wide = dist.DiscreteUniform(-3, 8) if distribution.is_discrete else dist.Normal(1.0, 4.0)
    out = run(sy.propose(sampling(distribution), sampling(wide)), particles=20_000)
    assert abs(out.log_z) < 0.08


def test_what_is_masked_out_does_not_count() -> None:
    prior = dist.Gamma(2.0, jnp.ones(3)).mask(MASK)
    f = density(prior)
    exact = dist.Gamma(2.0, 1.0).log_prob(np.array([1.0, 0.5])).sum()
    for missing in (2.0, -1.0, np.nan, np.inf):
        value = jnp.array([1.0, missing, 0.5])
        np.testing.assert_allclose(f(value), exact, rtol=1e-6)
        gradient = jax.grad(lambda z: f(z))(value)
        np.testing.assert_allclose(gradient, [0.0, 0.0, 1.0], atol=1e-6)
    assert f(jnp.array([-1.0, 1.0, 0.5])) == -np.inf
    event = dist.Beta(jnp.full((2, 3), 2.0), 1.0).mask(np.stack([MASK, ~MASK])).to_event(2)
    value = jnp.array([[0.5, 7.0, 0.5], [np.nan, 0.25, -2.0]])
    np.testing.assert_allclose(density(event)(value), np.log(0.5), rtol=1e-5)


@pytest.mark.parametrize("base", [dist.Normal(0.0, 1.0), dist.HalfNormal(1.0), dist.Poisson(2.0)])
@pytest.mark.parametrize("evaluate", [run, universal])
def test_missing_data_are_masked(base: Any, evaluate: Any) -> None:
    data = jnp.array([1.0, -1.0 if base.is_discrete else np.nan, 2.0])

    def model(s: sy.State) -> None:
        s.observe("x", base.expand([3]).mask(MASK), data)

    expected = float(base.log_prob(1.0) + base.log_prob(2.0))
    np.testing.assert_allclose(evaluate(model, particles=2).log_weight, [expected] * 2, rtol=1e-5)


def test_a_mask_that_is_a_constant() -> None:
    value = jnp.array([1.0, -1.0, 2.0])
    assert density(dist.Exponential(jnp.ones(3)).mask(False))(value) == 0.0
    assert density(dist.Exponential(jnp.ones(3)).mask(True))(value) == -np.inf


def test_a_simplex_of_many_is_one_up_to_rounding() -> None:
    prior = dist.Dirichlet(jnp.full(20_000, 2.0))
    out = run(sy.propose(sampling(prior), sampling(prior)), particles=4)
    np.testing.assert_allclose(out.log_weight, 0.0, atol=1e-2 * 20_000 * 1e-3)
    f = density(dist.Dirichlet(jnp.ones(3)))
    assert f(jnp.array([0.2, 0.3, 0.5])) == pytest.approx(np.log(2), rel=1e-5)
    assert [float(f(jnp.array(z))) for z in ([0.2, 0.3, 0.6], [-0.2, 0.7, 0.5], [0.2, 0.3, 0.49])] == [-np.inf] * 3


@pytest.mark.parametrize(
    ("distribution", "inside", "outside"),
    [
        (dist.Wishart(4.0, jnp.eye(2)), [[2.0, 0.3], [0.3, 1.0]], [[2.0, 0.3], [0.4, 1.0]]),
        (dist.Wishart(4.0, jnp.eye(2)), [[2.0, 0.3], [0.3, 1.0]], [[1.0, 2.0], [2.0, 1.0]]),
        (dist.LKJ(2, 1.0), [[1.0, 0.3], [0.3, 1.0]], [[2.0, 0.3], [0.3, 1.0]]),
        (dist.LKJCholesky(2, 1.0), [[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.7]]),
        (dist.ProjectedNormal(jnp.ones(2)), [0.6, 0.8], [0.6, 0.9]),
        (dist.Multinomial(3, jnp.array([0.5, 0.5])), [1, 2], [1, 1]),
    ],
)
def test_events_with_a_shape_of_their_own(distribution: Any, inside: Any, outside: Any) -> None:
    f = density(distribution)
    np.testing.assert_allclose(f(jnp.array(inside)), distribution.log_prob(jnp.array(inside)), rtol=1e-5)
    assert f(jnp.array(outside)) == -np.inf


@pytest.mark.parametrize("concentration", [0.01, 0.001])
@pytest.mark.parametrize("evaluate", [run, universal])
def test_draws_that_underflow_are_their_own_proposals(concentration: float, evaluate: Any) -> None:
    """With both engines, and where gradients are asked for."""
    q = sy.propose(*[sampling(dist.Gamma(concentration, 1.0))] * 2)
    out = evaluate(q, particles=20)
    np.testing.assert_allclose(out.log_weight, 0.0, atol=1e-4)
    assert (np.asarray(out.trace["z"]) > 0).all()

    def expected(concentration: Any) -> Any:
        out = sy.evaluate(sampling(dist.Gamma(concentration, 1.0)), KEY, particles=50)
        return jnp.mean(out.trace["z"] + out.log_density["z"])

    assert np.isfinite(jax.jit(jax.grad(expected))(concentration))
