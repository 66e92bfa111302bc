"""The two engines run the same rules: with the same key they give the same particles, for any program."""

from collections import Counter
from typing import Any

import jax
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import steelyard as sy
from tests.laws.comparison import assert_same, log_density, present, trace_of
from tests.laws.strategies import Example, examples

EXAMPLES = 150
PARTICLES = 5  # more than the examples were drawn for: nothing is enumerated here


def test_engines_agree() -> None:
    """And both agree with `log_density` about the traces that they give."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.sampled_from((1, 3)).flatmap(examples), st.integers(0, 99))
    def law(example: Example, seed: int) -> None:
        with jax.enable_x64(True):
            vectorized, universal = (_evaluate(example, seed, engine) for engine in ("vectorized", "universal"))
            if vectorized is None or universal is None:
                assert vectorized is universal
                seen["all weights zero"] += 1
                return
            assert_same(vectorized, universal)
            _assert_same_levels(vectorized, universal)
            _assert_density_of_traces(example, vectorized)
            _assert_reuses_its_trace(example, vectorized, "vectorized")
            _assert_reuses_its_trace(example, universal, "universal")
            seen.update(_events(vectorized))

    law()
    print(seen)
    assert seen["all weights zero"] < EXAMPLES / 5
    assert not [event for event in ("absent", "some weights zero", "resampled", "several levels") if seen[event] < 3]


def _evaluate(example: Example, seed: int, engine: Any, given: Any = None) -> sy.Evaluation | None:
    """Return None where no particle has a weight, which is an error."""
    key = jax.random.key(seed)
    try:
        return sy.evaluate(example.q, key, example.argument, particles=PARTICLES, given=given, engine=engine)
    except sy.WeightError:
        return None


def _assert_same_levels(vectorized: sy.Evaluation, universal: sy.Evaluation) -> None:
    for one, other in zip(vectorized.levels, universal.levels, strict=True):
        assert one.label == other.label
        numbers = [[e.log_z_increment, e.ess, e.max_weight, e.ancestors] for e in (one, other)]
        np.testing.assert_allclose(*np.asarray(numbers, float), rtol=1e-9, atol=1e-12)


def _assert_density_of_traces(example: Example, out: sy.Evaluation) -> None:
    for l, expected in enumerate(log_density(out)):
        trace = trace_of(out, l)
        found = sy.log_density(example.q, trace, example.argument)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=str(trace))


def _assert_reuses_its_trace(example: Example, out: sy.Evaluation, engine: Any) -> None:
    """Under substitution of a whole trace all variables count as if they were observed: the weight is the density."""
    again = _evaluate(example, 0, engine, given=out.trace)
    expected = log_density(out)
    if again is None:
        assert np.isneginf(expected).all()
    else:
        np.testing.assert_allclose(again.log_weight, expected, rtol=1e-9, atol=1e-12)


def _events(out: sy.Evaluation) -> list[str]:
    ancestors = np.arange(PARTICLES) if out.ancestors is None else np.asarray(out.ancestors)
    happened = {
        "absent": any(not present(out.trace, a, PARTICLES).all() for a in out.trace),
        "some weights zero": bool(np.isneginf(out.log_weight).any()),
        "resampled": bool((ancestors != np.arange(PARTICLES)).any()),
        "several levels": len(out.levels) > 2,
    }
    return [event for event, happens in happened.items() if happens]
