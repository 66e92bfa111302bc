"""Definition 1 of the paper, for programs from the whole grammar, without Monte Carlo noise."""

from collections import Counter

from hypothesis import HealthCheck, Phase, event, given, settings

import steelyard as sy
from tests.laws.coverage import EVERYTHING, features
from tests.laws.strategies import Example, examples, smallest_part

EXAMPLES = 250  # for each number of particles


def test_inference_programs_are_properly_weighted() -> None:
    """E[w_l 1(tau_l = t)] = gamma(t) for each particle l and each trace t, and the grammar was covered."""
    seen: Counter[str] = Counter()
    checked: set[Example] = set()

    for particles in (1, 2, 3):

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(examples(particles))
        def law(example: Example) -> None:
            found = features(example)
            for feature in sorted(found):
                event(feature)
            _check(example)
            checked.add(example)
            seen.update(found)

        law()

    assert len(checked) >= 2.9 * EXAMPLES  # a few small ones are drawn twice
    assert seen["depth 4 or more"] >= len(checked) / 3
    rare = {feature: seen[feature] for feature in EVERYTHING if seen[feature] < 3}
    assert not rare, f"the programs hardly contain {rare}"


def _check(example: Example) -> None:
    problem = _problem(example)
    if problem is not None:
        part = smallest_part(example, lambda part: _problem(part) is not None)
        raise AssertionError(f"{_problem(part)}\nThe smallest part that fails is\n{part}\nof\n{example}") from problem


def _problem(example: Example) -> Exception | None:
    try:
        sy.testing.assert_properly_weighted(example.q, example.argument, particles=example.particles)
    except (AssertionError, sy.SteelyardError) as problem:
        return problem
    return None
