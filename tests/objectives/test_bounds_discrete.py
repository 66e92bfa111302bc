"""elbo, iwae and vimco with discrete variables: expected gradients over every joint outcome of the particles."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from steelyard import objectives
from tests.objectives import discrete
from tests.objectives.estimates import Objective, Runs, assert_close, exact_gradient, expectation, run_all


def evidence_bound(log_weights: Any) -> Any:
    return -jnp.mean(log_weights)


def importance_weighted_bound(log_weights: Any) -> Any:
    return -jax.nn.logsumexp(log_weights) + jnp.log(log_weights.shape[-1])


BOUNDS: dict[str, tuple[Objective, Callable[[Any], Any]]] = {
    "elbo": (objectives.elbo, evidence_bound),
    "iwae": (objectives.iwae, importance_weighted_bound),
    "vimco": (objectives.vimco, importance_weighted_bound),
}


@cache
def runs(particles: int) -> dict[str, Runs]:
    every = {name: objective for name, (objective, _) in BOUNDS.items()}
    return run_all(discrete.ONE_LEVEL.build, discrete.PARAMS, every, particles=particles, runs=2**14)


@pytest.mark.parametrize("particles", [1, 2, 3])
@pytest.mark.parametrize("name", list(BOUNDS))
def test_expected_gradient_is_that_of_the_enumerated_loss(name: str, particles: int) -> None:
    found = expectation(discrete.ONE_LEVEL, discrete.PARAMS, runs(particles)[name])
    exact = exact_gradient(lambda p: discrete.expected_loss(p, particles, BOUNDS[name][1]), discrete.PARAMS)
    assert_close(found, exact)


# Variables that only one side has: c is drawn by the target from its prior, a is left out of the weight.
@pytest.mark.parametrize("name", list(BOUNDS))
def test_variables_of_one_side_only(name: str) -> None:
    objective, loss = BOUNDS[name]
    found = run_all(discrete.ONE_SIDED.build, discrete.SIDES, {name: objective}, particles=2, runs=2**13)[name]
    exact = exact_gradient(lambda p: discrete.one_sided_loss(p, 2, loss), discrete.SIDES)
    assert_close(expectation(discrete.ONE_SIDED, discrete.SIDES, found), exact)


# Two levels in sequence: what the first draws changes the loss of the second.
@pytest.mark.parametrize("name", list(BOUNDS))
def test_levels_in_sequence(name: str) -> None:
    objective, loss = BOUNDS[name]
    found = run_all(discrete.SEQUENCE.build, discrete.STEPS, {name: objective}, particles=2, runs=2**13)[name]
    exact = exact_gradient(lambda p: discrete.sequence_loss(p, 2, loss), discrete.STEPS)
    assert_close(expectation(discrete.SEQUENCE, discrete.STEPS, found), exact)
