"""The same law for programs as users write them, with NumPyro's distributions."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.language.programs import Program
from tests.laws.inference import METHODS


def model(s: sy.State, x: int) -> Any:
    """A mixture of two coins, and one of three faces that only one of them has."""
    z = s.sample("z", dist.Bernoulli(0.3))
    with s.when(z == 1):
        face = s.sample("face", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    bias = jnp.where(z == 1, 0.2 + 0.3 * face, 0.9)
    s.observe("x", dist.Bernoulli(bias), x)
    return z


def guide(s: sy.State, x: int) -> Any:
    z = s.sample("z", dist.Bernoulli(0.6 - 0.2 * x))
    s.sample("face", dist.Categorical(jnp.array([0.5, 0.1, 0.4])))
    return z


def coin(s: sy.State, x: int) -> Any:
    z = s.sample("z", dist.Bernoulli(0.3))
    s.observe("x", dist.Bernoulli(0.2 + 0.7 * z), x)
    return z


def toss(s: sy.State, z: Any) -> Any:
    """A kernel that moves z, given where it was; as a proposal it is given the data."""
    return s.sample("z", dist.Bernoulli(0.2 + 0.5 * z))


def pair(s: sy.State, x: int) -> Any:
    """Two coins at one address."""
    pair = s.sample("pair", dist.Bernoulli(jnp.array([0.2, 0.7])))
    s.observe("x", dist.Categorical(logits=jnp.array([0.3, -0.5, 1.1])), pair.sum())
    return pair


def pair_guide(s: sy.State, x: int) -> Any:
    return s.sample("pair", dist.Bernoulli(jnp.array([0.6, 0.4])))


PROGRAMS: dict[str, Program] = {
    "a variable that only some particles have": sy.propose(model, guide),
    "a variable with two values at one address": sy.propose(pair, pair_guide),
    "a Gibbs sweep": sy.propose(sy.extend(coin, sy.prev(toss)), sy.move(toss, sy.resample(sy.propose(coin, toss)))),
    "two weighted programs": sy.compose(sy.resample(sy.rename(coin, {"z": "z2", "x": "x2"})), sy.propose(coin, toss)),
    **{method: sy.resample(sy.propose(coin, toss), method=method, threshold=0.8) for method in METHODS},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_properly_weighted(name: str) -> None:
    particles = 1 if name.startswith("a variable") else 2
    sy.testing.assert_properly_weighted(PROGRAMS[name], 1, particles=particles, tolerance=1e-9)


def test_a_guide_that_misses_values_is_not_properly_weighted() -> None:
    """The condition of every importance sampler: proposals cover the target."""

    def narrow(s: sy.State, x: int) -> Any:
        # Not Bernoulli(0.0): NumPyro keeps probabilities away from zero.
        return s.sample("z", dist.Categorical(jnp.array([1.0])))

    with pytest.raises(AssertionError, match="is not properly weighted"):
        sy.testing.assert_properly_weighted(sy.propose(coin, narrow), 1, particles=1)
