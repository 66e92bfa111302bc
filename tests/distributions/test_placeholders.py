"""Values in place of absent variables: in the support, of the type of a draw, and without one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.distributions.densities import log_prob, log_prob_anywhere
from steelyard.distributions.distribution import sample
from steelyard.distributions.placeholders import placeholder

EXTREME = [(2.0, 3.0), (1e-3, 1e5), (1e4, 0.1), (0.05, 1e30)]
LOOPS = [
    *(dist.Gamma(*p) for p in EXTREME),
    *(dist.Beta(*p) for p in EXTREME[:3]),
    dist.Chi2(3.0),
    dist.BetaProportion(0.3, 5.0),
    dist.Dirichlet(jnp.array([0.5, 1e-3, 40.0])),
    dist.Poisson(jnp.array([0.1, 1e5])),
    dist.NegativeBinomial2(6.0, 2.5),
    dist.InverseGamma(3.0, 2.0),
    dist.InverseGamma(jnp.ones(3), 2.0).to_event(1),
    dist.TransformedDistribution(dist.Beta(2.0, 3.0), dist.transforms.AffineTransform(-1.0, 2.0)),
    dist.BetaBinomial(2.0, 3.0, 7),
    dist.StudentT(3.0, 1e30, jnp.ones(2)),
    dist.StudentT(3.0, 1.0, 2.0).expand([2]).to_event(1),
    dist.MultivariateStudentT(3.0, jnp.arange(2.0), jnp.eye(2)),
    dist.Gamma(jnp.ones((2, 3)), 2.0).to_event(1),
    dist.Gamma(2.0, 3.0).expand([3]).to_event(1),
    dist.Gamma(jnp.ones(3), 2.0).mask(jnp.array([True, False, True])),
]


@pytest.mark.parametrize("distribution", LOOPS)
def test_it_is_like_a_draw_and_costs_none(distribution: Any) -> None:
    value, drawn = placeholder(distribution), sample(distribution, jax.random.key(1))
    assert (value.shape, value.dtype) == (drawn.shape, drawn.dtype)
    assert np.isfinite(log_prob_anywhere(distribution, value))
    assert "while" not in str(jax.make_jaxpr(lambda: placeholder(distribution))())


def test_densities_have_finite_gradients_there() -> None:
    def density(kind: Any, a: Any, b: Any) -> Any:
        return log_prob(kind(a, b), placeholder(kind(a, b)))

    def scaled(df: Any, scale: Any) -> Any:
        return dist.StudentT(df, 1e20 * scale, scale)

    kinds = (dist.Gamma, EXTREME), (dist.Beta, EXTREME[:3]), (dist.NegativeBinomial2, EXTREME[:3])
    for kind, cases in (*kinds, (dist.InverseGamma, EXTREME[:3]), (scaled, EXTREME[:3])):
        for parameters in cases:
            assert np.isfinite(jax.grad(lambda p, kind=kind: density(kind, *p))(parameters)).all()


def test_what_draws_in_its_own_way_is_asked_for_a_draw() -> None:
    derived = type("Derived", (dist.Gamma,), {"sample": lambda self, key, sample_shape=(): jnp.asarray(7.0)})
    assert float(placeholder(derived(2.0, 1.0))) == 7
    assert float(placeholder(dist.Delta(1.5))) == 1.5


def program(s: sy.State, a: Any) -> None:
    flag = s.sample("flag", dist.Bernoulli(0.4)) == 1
    with s.when(flag):
        x = s.sample("x", dist.Gamma(a, 2.0))
    s.observe("y", dist.Normal(jnp.where(flag, x, 0.3), 1.0), 1.0)


def test_a_mask_draws_once_and_gradients_are_those_of_the_present() -> None:
    def log_z(a: Any) -> Any:
        return sy.evaluate(program, jax.random.key(2), a, particles=50).log_z

    assert jax.jit(log_z).lower(3.0).as_text().count("stablehlo.while") == 1
    out = sy.evaluate(program, jax.random.key(2), 3.0, particles=50)
    present = np.asarray(out.trace.present("x"))
    assert 0 < present.sum() < 50

    def by_hand(a: Any) -> Any:
        """The weight of each particle, where only those that have `x` depend on the parameter."""
        x = sy.evaluate(program, jax.random.key(2), a, particles=50).trace["x"]
        return jax.nn.logsumexp(dist.Normal(jnp.where(present, x, 0.3), 1.0).log_prob(1.0)) - jnp.log(50.0)

    np.testing.assert_allclose(log_z(3.0), by_hand(3.0), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(log_z)(3.0), jax.grad(by_hand)(3.0), rtol=1e-4)
    assert np.isfinite(jax.grad(log_z)(3.0))


def test_both_engines_show_the_same_value() -> None:
    def absent(s: sy.State) -> Any:
        with s.when(s.sample("flag", dist.Bernoulli(0.0)) == 1):
            return s.sample("x", dist.Gamma(3.0, 2.0)), s.sample("p", dist.Dirichlet(jnp.ones(3)))

    seen = [sy.evaluate(absent, jax.random.key(0), particles=2, engine=e).value for e in ("vectorized", "universal")]
    jax.tree.map(np.testing.assert_array_equal, *seen)
