"""elbo, iwae and vimco with discrete variables: expected gradients over every joint outcome of the particles."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from steelyard import objectives
from tests.objectives import discrete
from tests.objectives.estimates import (
    Finite,
    Objective,
    Params,
    Runs,
    assert_close,
    exact_gradient,
    expectation,
    run_all,
)


def evidence_bound(log_weights: Any) -> Any:
    return -jnp.mean(log_weights)


def importance_weighted_bound(log_weights: Any) -> Any:
    return -jax.nn.logsumexp(log_weights) + jnp.log(log_weights.shape[-1])


BOUNDS: dict[str, tuple[Objective, Callable[[Any], Any]]] = {
    "elbo": (objectives.elbo, evidence_bound),
    "iwae": (objectives.iwae, importance_weighted_bound),
    "vimco": (objectives.vimco, importance_weighted_bound),
}


class Problem(NamedTuple):
    """A finite level, its parameters, and the expectation of its loss over every joint outcome."""

    level: Finite
    params: Params
    expected_loss: Callable[[Params, int, Callable[[Any], Any]], Any]


PROBLEMS = {
    "one level": Problem(discrete.ONE_LEVEL, discrete.PARAMS, discrete.expected_loss),
    # The target draws a variable from its prior, and one of the proposal is left out of the weight.
    "variables of one side only": Problem(discrete.ONE_SIDED, discrete.SIDES, discrete.one_sided_loss),
    # What the first level draws changes the loss of the second.
    "levels in sequence": Problem(discrete.SEQUENCE, discrete.STEPS, discrete.sequence_loss),
}


@cache
def runs(problem: str, particles: int) -> dict[str, Runs]:
    level, params, _ = PROBLEMS[problem]
    every = {name: objective for name, (objective, _) in BOUNDS.items()}
    return run_all(level.build, params, every, particles=particles, runs=2**13)


@cache
def exact(problem: str, particles: int, loss: Callable[[Any], Any]) -> Params:
    _, params, expected_loss = PROBLEMS[problem]
    return exact_gradient(lambda p: expected_loss(p, particles, loss), params)


@pytest.mark.parametrize(
    ("problem", "particles"),
    [
        ("one level", 1),
        ("one level", 2),
        ("one level", 3),
        ("variables of one side only", 2),
        ("levels in sequence", 2),
    ],
)
@pytest.mark.parametrize("name", list(BOUNDS))
def test_expected_gradient_is_that_of_the_enumerated_loss(name: str, problem: str, particles: int) -> None:
    level, params, _ = PROBLEMS[problem]
    found = expectation(level, params, runs(problem, particles)[name])
    assert_close(found, exact(problem, particles, BOUNDS[name][1]))
