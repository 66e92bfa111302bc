"""Enumeration finds the outcomes of a part once, and tells apart what only looks the same."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.testing.outcomes import contents, frozen


def test_numbers_that_are_equal_and_not_the_same_are_told_apart() -> None:
    alike = [1, 1.0, True, np.int32(1), np.float64(1.0), jnp.asarray(1), (1,), [1], 0.0, -0.0, "1", None]
    marks = [frozen(x) for x in alike]
    assert len(set(marks)) == len(alike)
    assert marks == [frozen(x) for x in alike]


def test_a_program_runs_as_often_for_many_particles_as_for_few() -> None:
    def runs(particles: int) -> int:
        count = []

        def guide(s: sy.State) -> Any:
            count.append(1)
            return s.sample("a", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))

        def goal(s: sy.State) -> Any:
            count.append(1)
            return s.sample("a", dist.Categorical(jnp.array([0.5, 0.4, 0.1])))

        outcomes = [*sy.testing.enumerate(sy.resample(sy.propose(goal, guide)), particles=particles)]
        assert sum(p for p, _ in outcomes) == pytest.approx(1.0)
        return len(count)

    assert runs(3) == runs(2) == runs(1)


@pytest.mark.parametrize(
    "one, other",
    [
        (dist.Bernoulli(0.3), dist.Bernoulli(0.30000001)),
        (dist.Bernoulli(0.3), dist.Bernoulli(probs=np.float64(0.3))),
        (dist.Bernoulli(probs=0.3), dist.Bernoulli(logits=0.3)),
        (dist.Categorical(np.array([0.5, 0.5])), dist.Categorical(np.array([[0.5, 0.5]]))),
        (dist.Bernoulli(0.3), dist.Bernoulli(0.3).mask(False)),
        (dist.Binomial(3, 0.3), dist.Binomial(4, 0.3)),
        (dist.Bernoulli(np.full(2, 0.3)), dist.Bernoulli(np.full(2, 0.3)).to_event(1)),
    ],
)
def test_distributions_that_differ_are_told_apart(one: Any, other: Any) -> None:
    assert contents(one) != contents(other)
    assert contents(one) == contents(one)


def test_a_distribution_that_changes_is_asked_every_time() -> None:
    """One object of a class of its own, with another parameter at each site."""

    class Coin:
        probability = 0.5

        def sample(self, key: Any) -> Any:
            raise NotImplementedError

        def enumerate_support(self) -> list[int]:
            return [0, 1]

        def log_prob(self, value: Any) -> Any:
            return np.log(self.probability if value else 1 - self.probability)

    coin = Coin()

    def program(s: sy.State) -> None:
        coin.probability = 0.2
        a = s.sample("a", coin)
        coin.probability = 0.9 if a else 0.3
        s.sample("b", coin)

    found = {(int(e.trace["a"][0]), int(e.trace["b"][0])): p for p, e in sy.testing.enumerate(program, particles=1)}
    expected = {(0, 0): 0.8 * 0.7, (0, 1): 0.8 * 0.3, (1, 0): 0.2 * 0.1, (1, 1): 0.2 * 0.9}
    assert found == pytest.approx(expected)
    for p, e in sy.testing.enumerate(program, particles=1):
        assert float(e.log_density["a"][0] + e.log_density["b"][0]) == pytest.approx(np.log(p))
