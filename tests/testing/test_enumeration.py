"""Enumeration: every outcome, once, with its probability."""

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.testing.outcomes import every_noise, every_value


def coin(s: sy.State, p: float = 0.25) -> Any:
    return s.sample("heads", dist.Bernoulli(p))


def weighted(s: sy.State) -> Any:
    z = s.sample("z", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    s.factor("f", jnp.log(1.0 + z))
    return z


def values(out: sy.Evaluation, address: str) -> tuple[int, ...]:
    return tuple(int(value) for value in out.trace[address])


def test_every_outcome_of_two_particles() -> None:
    found = {values(out, "z"): p for p, out in sy.testing.enumerate(weighted, particles=2)}
    prior = [0.2, 0.5, 0.3]
    assert set(found) == set(itertools.product(range(3), repeat=2))
    for (a, b), probability in found.items():
        assert probability == pytest.approx(prior[a] * prior[b], rel=1e-7)


def test_arguments_are_passed_on() -> None:
    assert [round(p, 6) for p, _ in sy.testing.enumerate(coin, 0.1, particles=1)] == [0.9, 0.1]


@pytest.mark.parametrize("method", ["systematic", "stratified", "multinomial", "residual"])
def test_probabilities_add_up_with_resampling(method: Any) -> None:
    outcomes = list(sy.testing.enumerate(sy.resample(weighted, method=method), particles=2))
    assert sum(p for p, _ in outcomes) == pytest.approx(1.0, rel=1e-7)
    # E[w] = Z, and every particle has the average weight.
    z = 0.2 * 1 + 0.5 * 2 + 0.3 * 3
    assert sum(p * math.exp(out.log_weight[0]) for p, out in outcomes) == pytest.approx(z, rel=1e-7)
    assert all(out.log_weight[0] == out.log_weight[1] for _, out in outcomes)


def test_multinomial_ancestors_are_independent_and_systematic_ones_are_not() -> None:
    def law(method: str) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        q = sy.resample(weighted, method=method)  # pyright: ignore
        for p, out in sy.testing.enumerate(q, particles=2):
            found[values(out, "z")] = found.get(values(out, "z"), 0.0) + p
        return found

    multinomial, systematic = law("multinomial"), law("systematic")
    assert multinomial[(0, 1)] == pytest.approx(multinomial[(1, 0)])
    assert systematic[(0, 1)] == pytest.approx(systematic[(1, 0)])
    # Of a pair (0, 1) with weights 1 and 2, multinomial resampling keeps both 4 times in 9, systematic 6 times.
    assert multinomial[(0, 1)] == pytest.approx(0.2 * 0.5 * 4 / 9)
    assert systematic[(0, 1)] == pytest.approx(0.2 * 0.5 * 6 / 9)


def test_batches_are_enumerated_jointly() -> None:
    pairs = every_value("z", dist.Bernoulli(jnp.array([0.1, 0.6])))
    assert len(pairs) == 4
    found = {tuple(np.asarray(v).tolist()): p for p, v in pairs}
    assert found[(1, 0)] == pytest.approx(0.1 * 0.4, rel=1e-5)
    assert sum(found.values()) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("distribution", [dist.Normal(0.0, 1.0), dist.Poisson(2.0)], ids=["continuous", "infinite"])
def test_what_is_not_finite_is_refused_with_a_remedy(distribution: Any) -> None:
    with pytest.raises(sy.ArgumentError, match="'z'.*not finite and discrete.*check_evidence"):
        list(sy.testing.enumerate(lambda s: s.sample("z", distribution), particles=1))


@pytest.mark.parametrize("method", ["systematic", "stratified", "multinomial", "residual"])
def test_pieces_of_noise_have_probability_one_together(method: str) -> None:
    for weights in ([0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [np.nan] * 3):
        pieces = list(every_noise(method, np.array(weights)))
        assert sum(p for p, _ in pieces) == pytest.approx(1.0, rel=1e-9)
        assert all(0 <= u < 1 for _, noise in pieces for u in noise.uniforms)


class Surely:
    """The distribution that gives 1 of 0 and 1; NumPyro's keep a rest of probability for the other."""

    def sample(self, key: Any) -> int:
        return 1

    def log_prob(self, value: Any) -> float:
        return 0.0 if value == 1 else -math.inf

    def enumerate_support(self) -> range:
        return range(2)


def test_impossible_choices_are_left_out() -> None:
    outcomes = list(sy.testing.enumerate(lambda s: s.sample("z", Surely()), particles=2))
    assert [(p, values(out, "z")) for p, out in outcomes] == [(1.0, (1, 1))]
