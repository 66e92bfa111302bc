"""Self-normalised estimators: what they converge to, and that their bias shrinks as 1/L."""

from collections.abc import Mapping
from functools import cache
from typing import Literal

import numpy as np
import pytest

from steelyard import objectives
from tests.objectives import nested
from tests.objectives.estimates import Objective, Params, Runs, check_average, expectation, run_all

# For each objective, what its gradient estimates: for each learned density the quantity that is differentiated.
ESTIMATES: dict[str, tuple[Objective, Mapping[str, str]]] = {
    "reverse_kl": (objectives.reverse_kl, dict.fromkeys(("before", "after", "forward", "reverse"), "check_hat")),
    "forward_kl": (objectives.forward_kl, dict.fromkeys(("before", "after", "forward", "reverse"), "hat_check")),
    # The proposal is itself weighted: the two-term estimator.
    "wake_phi": (objectives.wake_phi, {"before": "hat_check", "forward": "hat_check"}),
    "wake_theta": (objectives.wake_theta, {"after": "evidence"}),
    "rws": (objectives.rws, {"before": "hat_check", "forward": "hat_check", "after": "evidence"}),
    "apg": (objectives.apg, {"forward": "hat_check", "after": "evidence"}),
    # Not self-normalised, but of the same level.
    "avo": (objectives.avo, dict.fromkeys(("before", "after", "forward", "reverse"), "unweighted")),
}
OBJECTIVES = {name: objective for name, (objective, _) in ESTIMATES.items()}


def expected(problem: Literal["discrete", "continuous"], name: str) -> Params:
    gradients = nested.exact(problem)
    return {density: gradients[quantity][density] for density, quantity in ESTIMATES[name][1].items()}


@cache
def few_particles(particles: int, runs: int) -> dict[str, dict[str, np.ndarray]]:
    """The expectations of all estimators over the states of a few particles."""
    build, params, _ = nested.DISCRETE
    found = run_all(build, params, OBJECTIVES, particles=particles, runs=runs)
    return {name: expectation(nested.FINITE, params, f, missing=1e-2) for name, f in found.items()}


@cache
def many_particles() -> dict[str, Runs]:
    build, params, _ = nested.CONTINUOUS
    return run_all(build, params, OBJECTIVES, particles=2**14, runs=64)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in ESTIMATES if name != "avo"])
def test_bias_halves_when_particles_double(name: str) -> None:
    found = [few_particles(*size)[name] for size in ((4, 2**13), (8, 2**14), (16, 2**15))]
    for density, gradient in expected("discrete", name).items():
        biases = [np.linalg.norm(f[density] - gradient) for f in found]
        assert 1.7 < biases[0] / biases[1] < 2.3, (density, biases)
        assert 1.8 < biases[1] / biases[2] < 2.2, (density, biases)
        # Without its part in 1/L the bias is gone.
        extrapolated = 2 * found[2][density] - found[1][density]
        assert np.linalg.norm(extrapolated - gradient) < 0.02 * np.linalg.norm(gradient), (density, gradient)


@pytest.mark.parametrize("name", list(ESTIMATES))
def test_gradient_of_many_particles_against_quadrature(name: str) -> None:
    check_average(many_particles()[name], expected("continuous", name))


@pytest.mark.parametrize("name", list(ESTIMATES))
def test_what_is_not_learned_has_no_gradient(name: str) -> None:
    learned = ESTIMATES[name][1]
    for density, gradient in many_particles()[name].gradient.items():
        assert np.any(gradient) == (density in learned), density
