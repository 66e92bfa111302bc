"""The two engines run the same rules: with the same key they give the same particles, for any program."""

from collections import Counter
from random import Random

import numpy as np

import steelyard as sy
from steelyard.language.programs import Detach, Scan
from tests.laws.comparison import present
from tests.laws.coverage import counting_reuse
from tests.laws.laws import PARTICLES, engines_agree, passes_change_nothing
from tests.laws.strategies import Example, example_from
from tests.laws.structure import subprograms

EXAMPLES = 150
REPEATING = 16


def test_engines_agree() -> None:
    """And both agree with `log_density` about the traces that they give."""
    seen: Counter[str] = Counter()
    for number in range(EXAMPLES):
        rng = Random(number)
        example = example_from(rng, rng.choice((1, 3)))
        out = engines_agree(example, rng.randint(0, 99))
        seen.update(["all weights zero"] if out is None else _events(example, out))
    assert seen["all weights zero"] < EXAMPLES / 5
    expected = ("absent", "some weights zero", "resampled", "several levels", "a loop", "a loop that keeps", "detached")
    rare = {event: seen[event] for event in expected if seen[event] < 3}
    assert not rare, f"hardly ever: {rare}"


def test_passes_of_the_compiler_change_nothing() -> None:
    """Neither particles nor losses and gradients; and densities are really reused."""
    reused = 0
    for number in range(REPEATING):
        rng = Random(number)
        with counting_reuse() as count:
            passes_change_nothing(example_from(rng, rng.choice((1, 3)), repeats=True), rng.randint(0, 99))
        reused += count() > 0
    assert reused >= REPEATING / 4


def test_passes_change_nothing_in_loops() -> None:
    """Most passes work on the steps of a scan, and on their gradients."""
    looped = 0
    for number in range(1000, 1040):
        rng = Random(number)
        example = example_from(rng, 1)
        if any(isinstance(part, Scan) and part.length > 1 for part in subprograms(example.q)):
            passes_change_nothing(example, rng.randint(0, 99))
            looped += 1
    assert looped >= 3


def _events(example: Example, out: sy.Evaluation) -> list[str]:
    ancestors = np.arange(PARTICLES) if out.ancestors is None else np.asarray(out.ancestors)
    parts = list(subprograms(example.q))
    happened = {
        "absent": any(not present(out.trace, a, PARTICLES).all() for a in out.trace),
        "some weights zero": bool(np.isneginf(out.log_weight).any()),
        "resampled": bool((ancestors != np.arange(PARTICLES)).any()),
        "several levels": len(out.levels) > 2,
        "a loop": any(isinstance(part, Scan) and part.length > 1 for part in parts),
        "a loop that keeps": out.kept is not None,
        "detached": any(isinstance(part, Detach) for part in parts),
    }
    return [event for event, happens in happened.items() if happens]
