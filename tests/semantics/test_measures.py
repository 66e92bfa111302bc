"""A proposal must have a density of the target's kind, and reach whatever the target reaches."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints, transforms

import steelyard as sy
from tests.running import KEY, run

NORMAL, POISSON = dist.Normal(0.0, 1.0), dist.Poisson(2.0)
ENGINES: Any = pytest.mark.parametrize("engine", ["vectorized", "universal"])


def sampling(distribution: Any, address: str = "z") -> Any:
    def program(s: sy.State, *_: Any) -> Any:
        return s.sample(address, distribution)

    return program


def proposing(target: Any, proposal: Any) -> Any:
    return sy.propose(sampling(target), sampling(proposal))


def spike_and_slab(width: float) -> Any:
    half = dist.Categorical(jnp.array([0.5, 0.5]))
    return dist.MixtureGeneral(half, [dist.Delta(0.0), dist.Normal(0.0, width)], support=constraints.real)


def shifted(base: Any) -> Any:
    return dist.TransformedDistribution(base, transforms.AffineTransform(1.0, -2.0))


UNLIKE = [
    (NORMAL, dist.Delta(0.3)),
    (dist.Delta(0.3), NORMAL),
    (NORMAL, POISSON),
    (POISSON, NORMAL),
    (dist.Gamma(2.0, 1.0), POISSON),
    (dist.Bernoulli(0.3), dist.Beta(1.0, 1.0)),
    (dist.Normal(jnp.zeros(2), 1.0).to_event(1), dist.Delta(jnp.zeros(2), event_dim=1)),
    (dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), dist.Delta(jnp.zeros(2)).to_event(1)),
    (dist.LogNormal(0.0, 1.0), dist.TransformedDistribution(dist.Delta(0.3), transforms.ExpTransform())),
    (spike_and_slab(1.0), NORMAL),
    (dist.HurdleGamma(0.3, 2.0), dist.Gamma(2.0)),
]


@ENGINES
@pytest.mark.parametrize(("target", "proposal"), UNLIKE)
def test_a_density_is_not_compared_with_a_mass(target: Any, proposal: Any, engine: Any) -> None:
    with pytest.raises(sy.MeasureError, match="'z' is proposed from") as caught:
        sy.evaluate(proposing(target, proposal), KEY, particles=2, engine=engine)
    assert "propose(program, program)" in str(caught.value)
    with pytest.raises(sy.MeasureError):
        sy.check(proposing(target, proposal))


MISSING = [
    (NORMAL, dist.HalfNormal(1.0)),
    (dist.Uniform(0.0, 2.0), dist.Uniform(0.0, 1.0)),
    (dist.Uniform(jnp.zeros(2), jnp.array([1.0, 3.0])), dist.Uniform(jnp.zeros(2), jnp.array([1.0, 2.0]))),
    (POISSON, dist.Binomial(3, 0.5)),
    (dist.Categorical(jnp.full(4, 0.25)), dist.Bernoulli(0.5)),
    (dist.Gamma(2.0, 1.0), dist.Beta(1.0, 1.0)),
    (dist.Gamma(2.0, 1.0), dist.Pareto(1.0, 2.0)),
    (NORMAL, shifted(dist.Uniform(0.0, 1.0))),
    (NORMAL, dist.TruncatedNormal(0.0, 1.0, low=-3.0, high=3.0)),
    (POISSON, dist.Delta(3)),
    (dist.Normal(jnp.zeros(3), 1.0).to_event(1), dist.Dirichlet(jnp.ones(3))),
    (dist.ImproperUniform(constraints.real, (), ()), dist.Exponential(1.0)),
]


@ENGINES
@pytest.mark.parametrize(("target", "proposal"), MISSING)
def test_a_proposal_that_misses_a_part_of_the_target_is_remarked(target: Any, proposal: Any, engine: Any) -> None:
    with pytest.warns(sy.SupportWarning, match="'z' is proposed from"):
        sy.evaluate(proposing(target, proposal), KEY, particles=200, engine=engine)
    assert [remark.kind for remark in sy.check(proposing(target, proposal))] == ["support"]


@jax.jit
def traced(x: Any) -> Any:
    return sy.evaluate(proposing(dist.Uniform(0.0, 3.0), dist.Uniform(0.0, x)), KEY, particles=20).log_weight


FINE = [
    (NORMAL, dist.StudentT(3.0)),
    (dist.Gamma(2.0, 1.0), NORMAL),
    (dist.Beta(1.0, 1.0), dist.Gamma(2.0, 1.0)),
    (dist.Uniform(0.0, 1.0), dist.Beta(1.0, 1.0)),
    (dist.Uniform(-np.float32(np.pi), np.pi), dist.VonMises(0.0, 1.0)),
    (dist.VonMises(0.0, 1.0), dist.Uniform(-np.pi, np.float32(np.pi))),
    (dist.Binomial(3, 0.5), POISSON),
    (dist.Categorical(jnp.array([0.5, 0.5])), dist.Bernoulli(0.5)),
    (dist.Delta(3), POISSON),
    (dist.Delta(0.3), dist.Delta(0.3)),
    (dist.Dirichlet(jnp.ones(3)), dist.Dirichlet(jnp.full(3, 2.0))),
    (dist.LKJCholesky(3), dist.LKJCholesky(3, 2.0)),
    (spike_and_slab(1.0), spike_and_slab(2.0)),
    (dist.HurdleGamma(0.3, 2.0), dist.HurdleLogNormal(0.5)),
    (NORMAL.mask(False), dist.Delta(0.3)),
    (NORMAL.expand([2]), dist.Normal(jnp.zeros(2), 2.0).to_event(1)),
    (shifted(dist.Exponential(1.0)), NORMAL),
    (shifted(dist.Uniform(0.0, 1.0)), dist.Uniform(-2.0, 1.0)),
    (dist.LogNormal(0.0, 1.0), dist.HalfCauchy(1.0)),
    (dist.MixtureSameFamily(dist.Categorical(jnp.array([0.5, 0.5])), dist.Normal(jnp.zeros(2), 1.0)), NORMAL),
    (dist.ZeroInflatedPoisson(0.3, 2.0), POISSON),
    (dist.ImproperUniform(constraints.positive, (), ()), dist.Exponential(1.0)),
]


@ENGINES
@pytest.mark.parametrize(("target", "proposal"), FINE)
def test_no_false_alarms(target: Any, proposal: Any, engine: Any) -> None:
    """Warnings are errors here."""
    sy.evaluate(proposing(target, proposal), KEY, particles=30, engine=engine)
    assert list(sy.check(proposing(target, proposal))) == []


def test_what_is_not_known_is_not_remarked() -> None:
    assert np.isfinite(traced(2.0)).all()

    class Mine:
        def sample(self, key: Any) -> Any:
            return jnp.abs(jax.random.normal(key))

        def log_prob(self, value: Any) -> Any:
            return dist.HalfNormal(1.0).log_prob(value)

    for q in (proposing(NORMAL, Mine()), proposing(Mine(), NORMAL)):
        sy.evaluate(q, KEY, particles=20)


def test_values_that_are_given_are_not_proposed() -> None:
    """The density at a point is asked for, or at draws from elsewhere."""
    point = sy.evaluate(sampling(dist.Delta(0.3)), KEY, particles=3)
    out = sy.evaluate(sampling(NORMAL), KEY, particles=3, given=point.trace)
    np.testing.assert_allclose(out.log_weight, [NORMAL.log_prob(0.3)] * 3, rtol=1e-6)
    sy.evaluate(sy.propose(sampling(NORMAL), sampling(NORMAL)), KEY, particles=3, given=point.trace)


def test_variables_that_the_target_does_not_sample_are_not_compared() -> None:
    def model(s: sy.State) -> None:
        s.sample("z", NORMAL)
        s.observe("x", NORMAL, 0.3)

    def guide(s: sy.State) -> None:
        s.sample("z", NORMAL)
        s.sample("x", dist.Delta(0.3))
        s.sample("auxiliary", POISSON)

    sy.evaluate(sy.propose(model, guide), KEY, particles=2)


def test_it_is_said_once_and_never_in_compiled_code() -> None:
    q = proposing(NORMAL, dist.HalfNormal(1.0))
    compiled = jax.jit(lambda key: sy.evaluate(q, key, particles=2).log_z)
    step = sy.scan(lambda q, _: sy.propose(sampling(NORMAL), sy.resample(q)), q, None, length=3)
    for evaluate in (
        lambda: compiled(KEY),
        lambda: sy.evaluate(q, KEY, particles=2),
        lambda: sy.evaluate(q, KEY, particles=2, engine="universal"),
        lambda: sy.evaluate(step, KEY, particles=2),
        lambda: jax.vmap(lambda key: sy.evaluate(q, key, particles=2).log_z)(jax.random.split(KEY, 2)),
    ):
        with warnings.catch_warnings(record=True, action="always") as caught:
            evaluate()
        assert [w.category for w in caught] == [sy.SupportWarning]
    with warnings.catch_warnings(record=True, action="always") as caught:
        compiled(jax.random.key(1))
    assert not caught
    with pytest.warns(sy.SupportWarning):
        assert run(q, particles=1000).log_z == pytest.approx(-np.log(2), abs=0.05)
