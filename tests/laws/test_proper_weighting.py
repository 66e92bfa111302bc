"""Definition 1 of the paper, for programs from the whole grammar, without Monte Carlo noise."""

from collections import Counter
from random import Random

import steelyard as sy
from steelyard.types import EngineName
from tests.laws.coverage import EVERYTHING, counting_reuse, features
from tests.laws.laws import proper_weighting
from tests.laws.strategies import Example, example_from, smallest_part

EXAMPLES = 250  # for each number of particles
VECTORIZED = {1: 14, 2: 6, 3: 4}


def test_inference_programs_are_properly_weighted() -> None:
    """E[w_l 1(tau_l = t)] = gamma(t) for each particle l and each trace t, and the grammar was covered."""
    seen: Counter[str] = Counter()
    checked: set[Example] = set()

    for particles in (1, 2, 3):
        for number in range(EXAMPLES):
            example = example_from(Random(f"{particles} particles, {number}"), particles, runs=2000)
            _check(example)
            checked.add(example)
            seen.update(features(example))

    assert len(checked) >= 2.9 * EXAMPLES  # a few small ones are drawn twice
    assert seen["depth 4 or more"] >= len(checked) / 3
    rare = {feature: seen[feature] for feature in EVERYTHING if seen[feature] < 3}
    assert not rare, f"the programs hardly contain {rare}"


def test_inference_programs_are_properly_weighted_with_everything_on_that_makes_them_fast() -> None:
    """The same in the vectorized engine, where scans are loops and densities are reused."""
    seen: Counter[str] = Counter()

    for particles, count in VECTORIZED.items():
        for number in range(count):
            example = example_from(Random(f"{particles} particles, {number}"), particles, runs=300, repeats=True)
            with counting_reuse() as reused:
                _check(example, "vectorized")
            seen.update(features(example))
            seen["a density was reused"] += reused() > 0

    assert seen["a density was reused"] >= 6
    assert seen["scan"] >= 6


def _check(example: Example, engine: EngineName = "universal") -> None:
    problem = _problem(example, engine)
    if problem is not None:
        part = smallest_part(example, lambda part: _problem(part, engine) is not None)
        message = f"{_problem(part, engine)}\nThe smallest part that fails is\n{part}\nof\n{example}"
        raise AssertionError(message) from problem


def _problem(example: Example, engine: EngineName) -> Exception | None:
    try:
        proper_weighting(example, engine)
    except (AssertionError, sy.SteelyardError) as problem:
        return problem
    return None
