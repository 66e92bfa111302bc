"""Exact enumeration finds mistakes in the rules: a check that nothing fails proves nothing."""

from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import steelyard as sy
from steelyard.semantics import rules
from tests.laws import wrong_rules
from tests.laws.coverage import features
from tests.laws.strategies import Example, examples
from tests.laws.wrong_rules import MISTAKES, Mistake

every_mistake = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)


@every_mistake
def test_a_program_shows_the_mistake(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    sy.testing.assert_properly_weighted(mistake.shows, particles=mistake.particles)
    mistake.install(monkeypatch)
    with pytest.raises(AssertionError, match="is not properly weighted"):
        sy.testing.assert_properly_weighted(mistake.shows, particles=mistake.particles)


def test_the_rule_without_its_mistake_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistakes are what fails in the rewritten propose, and nothing else of it."""
    monkeypatch.setattr(rules, "propose", wrong_rules.propose)
    for mistake in MISTAKES:
        sy.testing.assert_properly_weighted(mistake.shows, particles=mistake.particles)


@every_mistake
def test_generated_programs_show_the_mistake(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the law are rich enough: among them is one that the mistake makes improper."""
    candidates = [example for example in generated() if mistake.needs in features(example)]
    mistake.install(monkeypatch)
    assert any(map(_improper, candidates))


def _improper(example: Example) -> bool:
    try:
        sy.testing.assert_properly_weighted(example.q, example.argument, particles=example.particles)
    except sy.AddressError:
        # Variables that should have been dropped may collide with others before a weight can be wrong.
        return False
    except AssertionError:
        return True
    return False


@cache
def generated() -> list[Example]:
    """Return generated programs of two and three particles that are quickly enumerated."""
    found: dict[Example, None] = {}

    for particles, runs in ((2, 1000), (3, 2000)):

        @settings(
            max_examples=300,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(examples(particles, runs=runs))
        def collect(example: Example) -> None:
            found[example] = None

        collect()
    return list(found)
