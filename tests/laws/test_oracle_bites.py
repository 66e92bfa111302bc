"""Exact enumeration finds mistakes in the rules: a check that nothing fails proves nothing."""

from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

import steelyard as sy
from steelyard.language.programs import Propose
from steelyard.semantics import judgement
from steelyard.types import EngineName
from tests.laws import wrong_rules
from tests.laws.coverage import features
from tests.laws.laws import proper_weighting
from tests.laws.strategies import Example, example_from
from tests.laws.wrong_rules import MISTAKES, Mistake

EXAMPLES = 1500  # of each kind; the rarest mistakes show in 3 of 1000

every_mistake = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)


@every_mistake
def test_a_program_shows_the_mistake(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    sy.testing.assert_properly_weighted(mistake.shows, particles=mistake.particles, engine=mistake.engine)
    mistake.install(monkeypatch)
    with pytest.raises(AssertionError, match="is not properly weighted"):
        sy.testing.assert_properly_weighted(mistake.shows, particles=mistake.particles, engine=mistake.engine)


def test_the_rule_without_its_mistake_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistakes are what fails in the rewritten propose, and nothing else of it."""
    monkeypatch.setitem(judgement.INFERENCE_RULES, Propose, wrong_rules.propose)
    for mistake in (mistake for mistake in MISTAKES if mistake.engine == "universal"):
        sy.testing.assert_properly_weighted(mistake.shows, particles=mistake.particles, engine=mistake.engine)


# These are only seen after many programs.
LATE = {"weights kept by resample"}


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(m, marks=[pytest.mark.long] if m.name in LATE else [], id=m.name)
        for m in MISTAKES
        if m.needs is not None
    ],
)
def test_generated_programs_show_the_mistake(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the law are rich enough: among them is one that the mistake makes improper."""
    mistake.install(monkeypatch)
    assert any(_improper(example, mistake.engine) for example, has in generated(mistake.engine) if mistake.needs in has)


def _improper(example: Example, engine: EngineName) -> bool:
    try:
        proper_weighting(example, engine)
    except sy.AddressError:
        # Variables that should have been dropped may collide with others before a weight can be wrong.
        return False
    except AssertionError:
        return True
    return False


def generated(engine: EngineName) -> Iterator[tuple[Example, frozenset[str]]]:
    """Yield programs that are quickly enumerated, and what they have; one particle is enough to see what was reused."""
    kinds = ((1, 200, True),) if engine == "vectorized" else ((1, 400, False), (2, 1000, False), (3, 2000, False))
    for particles, runs, repeats in kinds:
        for number in range(EXAMPLES):
            yield _generated(number, particles, runs, repeats)


@cache
def _generated(number: int, particles: int, runs: int, repeats: bool) -> tuple[Example, frozenset[str]]:
    example = example_from(Random(number), particles, runs=runs, repeats=repeats)
    return example, features(example)
