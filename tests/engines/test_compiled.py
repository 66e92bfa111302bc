"""Draws and densities of single particles: compiled once for a kind of distribution, and the same as without."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler.keys import KeyCounter, Sites
from steelyard.distributions.densities import log_prob, log_prob_anywhere
from steelyard.engines import compiled
from steelyard.engines.deferred import DeferredDensities

LOGITS = jnp.array([0.3, -1.0, 2.0])
EXAMPLES: list[Any] = [
    dist.BernoulliLogits(0.7),
    dist.BernoulliProbs(0.3),
    dist.Beta(0.7, 2.5),
    dist.CategoricalLogits(LOGITS),
    dist.CategoricalProbs(jax.nn.softmax(LOGITS)),
    dist.Cauchy(0.5, 2.0),
    dist.Dirichlet(jnp.array([0.5, 2.0, 1.5])),
    dist.Exponential(1.7),
    dist.Gamma(0.6, 2.0),
    dist.Gumbel(0.5, 2.0),
    dist.HalfCauchy(1.5),
    dist.HalfNormal(1.5),
    dist.InverseGamma(2.5, 1.5),
    dist.Laplace(0.5, 2.0),
    dist.LogNormal(0.5, 0.7),
    dist.Logistic(0.5, 2.0),
    dist.Normal(0.5, 2.0),
    dist.Poisson(2.5),
    dist.StudentT(3.5, 0.5, 2.0),
    dist.Uniform(-1.0, 2.5),
    dist.Normal(jnp.array([0.5, -2.0]), 0.3).to_event(1),
]


class Shifted(dist.Normal):
    """A distribution of the user's own, which draws elsewhere."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return super().sample(key, sample_shape) + 100.0


class Foreign:
    """A distribution that is not NumPyro's."""

    def sample(self, key: Any) -> Any:
        return jax.random.normal(key)

    def log_prob(self, value: Any) -> Any:
        return -(value**2)


def test_every_kind_has_an_example() -> None:
    assert {type(d) for d in EXAMPLES} == {*compiled.KINDS, dist.Independent}


@pytest.mark.parametrize("distribution", EXAMPLES)
def test_a_compiled_distribution_is_the_same(distribution: Any) -> None:
    taking = compiled.Taking()
    assert taking.apart(distribution) is not None
    level, density = KeyCounter(jax.random.key(3)).next(), DeferredDensities(taking)
    value = compiled.CompiledSites(level, 5, taking)(2, "x", distribution)
    expected = Sites(level, 5)(2, "x", distribution)
    assert value.dtype == expected.dtype
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for function in (log_prob, log_prob_anywhere):
        np.testing.assert_allclose(
            float(density(function, distribution, expected)), function(distribution, expected), rtol=1e-5, atol=1e-6
        )
    elsewhere = jnp.full(np.shape(expected), -3, expected.dtype)
    outside = float(density(log_prob_anywhere, distribution, elsewhere))
    np.testing.assert_allclose(outside, log_prob_anywhere(distribution, elsewhere), rtol=1e-5)


def replaced() -> Any:
    distribution: Any = dist.Normal(0.0, 1.0)
    distribution.sample = lambda key: jnp.asarray(7.0)
    return distribution


OTHERS: dict[str, Any] = {
    "loses its support": dist.Levy(0.5, 2.0),
    "a subclass": Shifted(0.0, 1.0),
    "in a wrapper": Shifted(jnp.zeros(2), 1.0).to_event(1),
    "a method of its own": replaced(),
    "not NumPyro's": Foreign(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_might_not_come_through_whole_stays_in_python(name: str) -> None:
    assert compiled.Taking().apart(OTHERS[name]) is None

    def program(s: sy.State) -> None:
        s.sample("x", OTHERS[name])

    out = sy.evaluate(program, jax.random.key(0), particles=2, engine="universal")
    expected = sy.evaluate(program, jax.random.key(0), particles=2)
    np.testing.assert_allclose(np.stack(list(out.trace["x"])), expected.trace["x"], rtol=1e-5)
    np.testing.assert_allclose(out.log_density["x"], expected.log_density["x"], rtol=1e-4)


def test_each_kind_is_compiled_once_for_all_particles_sites_and_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[type] = []
    before = compiled.draw
    monkeypatch.setattr(compiled, "draw", lambda d, key: traced.append(type(d)) or before(d, key))

    def kernel(s: sy.State, z: Any) -> None:
        s.sample("again", dist.Gamma(np.full(7, 0.5, np.float32), z))

    def program(s: sy.State) -> Any:
        # Shapes that no other test uses: what was compiled before is not compiled again.
        z = s.sample("z", dist.Gamma(*np.full((2, 7), 2.0, np.float32)))
        for i in range(int(z[0] * 3) % 4):
            z = z + s.sample(f"x{i}", dist.Gamma(z, z))
        return z

    q = sy.compose(kernel, program)
    for number in range(2):
        sy.evaluate(q, jax.random.key(number), particles=8, engine="universal")
    assert traced == [dist.Gamma]
