"""Passes can be turned off, one by one; results stay the same."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler.passes import EVERY

WEIGHTS = 0.3 * jax.random.normal(jax.random.key(1), (4, 3, 3))


def model(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    s.factor("f", -jnp.abs(z).sum())
    return z


def annealed(weights: Any) -> Any:
    def step(q: Any, layer: Any) -> Any:
        def kernel(s: sy.State, z: Any) -> Any:
            return s.sample("z", dist.Normal(jnp.tanh(z @ layer), 0.7).to_event(1))

        return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(q)))

    return sy.scan(step, sy.propose(model, model), weights)


def loss(weights: Any, optimize: Any) -> Any:
    objective = sy.objectives.elbo
    return sy.evaluate(annealed(weights), jax.random.key(0), particles=6, objective=objective, optimize=optimize).loss


@cache
def result(passes: Any) -> Any:
    """With no pass, it is what all of them are compared with."""
    with jax.enable_x64(True):
        return jax.value_and_grad(loss)(WEIGHTS.astype(float), passes)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_each_pass_alone_changes_nothing(name: str) -> None:
    with jax.enable_x64(True):
        value, slope = result(False)
        for passes in (frozenset({name}), EVERY - {name}):
            ours, our_slope = result(passes)
            np.testing.assert_allclose(ours, value, rtol=1e-12)
            np.testing.assert_allclose(our_slope, slope, rtol=1e-9)


@pytest.mark.parametrize("wrong", ["reuse", ["speed"], [1], None, 1, [["reuse"]]])
def test_what_is_no_pass_is_an_error(wrong: Any, as_users_run_it: None) -> None:
    with pytest.raises(sy.ArgumentError, match="common subexpressions"):
        sy.evaluate(model, jax.random.key(0), particles=2, optimize=wrong)
