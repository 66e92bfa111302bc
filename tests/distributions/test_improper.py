"""Distributions that can be evaluated, but not drawn from."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import steelyard as sy
from tests.running import KEY

FLAT = dist.ImproperUniform(constraints.positive, (), ())


def model(s: sy.State, x: Any) -> Any:
    scale = s.sample("scale", FLAT)
    s.observe("x", dist.Normal(0.0, scale), x)
    return scale


def guide(s: sy.State, x: Any) -> None:
    s.sample("scale", dist.LogNormal(0.0, 1.0))


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_it_says_what_cannot_be_drawn(engine: Any) -> None:
    with pytest.raises(sy.ArgumentError, match=r"model .*'scale' .*ImproperUniform.*propose\(p, guide\)"):
        sy.evaluate(model, KEY, 1.3, particles=2, engine=engine)


def test_in_a_branch_that_is_not_taken_it_cannot_be_drawn_either() -> None:
    def optional(s: sy.State) -> None:
        with s.when(jnp.array(False)):
            s.sample("scale", FLAT)

    with pytest.raises(sy.ArgumentError, match="'scale' .*ImproperUniform"):
        sy.evaluate(optional, KEY, particles=2)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_with_a_proposal_it_has_density_one(engine: Any) -> None:
    out = sy.evaluate(sy.propose(model, guide), KEY, 1.3, particles=20, engine=engine)
    scale = np.asarray(out.trace["scale"])
    expected = dist.Normal(0.0, scale).log_prob(1.3) - dist.LogNormal(0.0, 1.0).log_prob(scale)
    np.testing.assert_allclose(out.log_weight, expected, rtol=1e-4, atol=1e-5)
    assert sy.log_density(lambda s: s.sample("scale", FLAT), {"scale": -0.5}) == -np.inf
    assert list(sy.check(sy.propose(model, guide), 1.3)) == []


def test_of_vectors() -> None:
    ordered = dist.ImproperUniform(constraints.ordered_vector, (), (3,))
    assert sy.log_density(lambda s: s.sample("z", ordered), {"z": jnp.array([1.0, 2.0, 3.0])}) == 0.0
    assert sy.log_density(lambda s: s.sample("z", ordered), {"z": jnp.array([1.0, 3.0, 2.0])}) == -np.inf


def test_check_does_not_draw_it_either() -> None:
    def further(s: sy.State, scale: Any) -> None:
        s.observe("y", dist.Normal(0.0, s.sample("other", FLAT)), scale)

    def proposal(s: sy.State, scale: Any) -> None:
        s.sample("other", dist.LogNormal(scale, 1.0))

    q = sy.compose(sy.propose(further, proposal), sy.propose(model, guide))
    assert list(sy.check(q, 1.3)) == []
    sy.evaluate(q, KEY, 1.3, particles=3)
