"""Inference inside of a distribution: any key that JAX makes, or that a program passes, gives draws of its own."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy


def inner(s: sy.State) -> Any:
    return s.sample("y", dist.Normal(0.0, 1.0))


@dataclass(frozen=True)
class ByEvaluation:
    """A normal distribution whose draws are those of a program."""

    def sample(self, key: Any) -> Any:
        return sy.evaluate(inner, key, particles=3).value[1]

    def log_prob(self, value: Any) -> Any:
        return dist.Normal(0.0, 1.0).log_prob(value)


@dataclass(frozen=True)
class ByResampling(ByEvaluation):
    """The same, by drawing one of many particles again."""

    def sample(self, key: Any) -> Any:
        return sy.evaluate(inner, jax.random.key(7), particles=1000).resample(key, 1).value[0]


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("engine", ["vectorized", "universal"])
@pytest.mark.parametrize("distribution", [ByEvaluation(), ByResampling()], ids=["evaluate", "resample"])
def test_particles_draw_on_their_own(distribution: Any, engine: Any, impl: str) -> None:
    def outer(s: sy.State) -> Any:
        return s.sample("a", distribution), s.sample("b", distribution)

    out = sy.evaluate(outer, jax.random.key(5, impl=impl), particles=8, engine=engine)
    drawn = np.concatenate([np.asarray(out.trace["a"]), np.asarray(out.trace["b"])])
    assert len(np.unique(drawn)) >= 12


def test_draws_inside_are_not_those_outside() -> None:
    def outer(s: sy.State) -> Any:
        return s.sample("y", dist.Normal(0.0, 1.0)), s.sample("a", ByEvaluation())

    y, a = sy.evaluate(outer, jax.random.key(0), particles=2000).value
    assert abs(np.corrcoef(y, a)[0, 1]) < 0.1
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 0.1
    assert abs(a.mean()) < 0.1 and abs(a.std() - 1) < 0.1


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_every_word_of_a_key_counts(impl: str) -> None:
    data = jax.random.key_data(jax.random.key(0, impl=impl))
    draws = [
        sy.evaluate(inner, jax.random.wrap_key_data(data.at[i].add(1), impl=impl), particles=1).value[0].item()
        for i in range(data.size)
    ]
    assert len(set(draws)) == data.size
