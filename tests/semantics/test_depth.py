"""Programs of a thousand levels: no rule calls another."""

import io
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

import steelyard as sy
from steelyard.language.describe import describe
from steelyard.language.programs import Program
from tests.laws.finite import Factor, Sample, Table

LEVELS = 1000
MODEL = Table((Sample("a", ((0.71, 0.29),)), Factor("f", (0.2, -0.4))))
KERNEL = Table((Sample("a", ((0.38, 0.62), (0.94, 0.06))),))


def chain(levels: int, step: Any) -> Program:
    q: Any = MODEL
    for _ in range(levels):
        q = step(q)
    return q


STEPS = {
    "propose": lambda q: sy.propose(MODEL, q),
    "resample": sy.resample,
    "detach": sy.detach,
    "rename": lambda q: sy.rename(sy.rename(q, {"a": "b"}), {"b": "a"}),
    "sweep": lambda q: sy.propose(sy.extend(MODEL, sy.prev(KERNEL)), sy.move(KERNEL, sy.resample(q))),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_thousand_levels_evaluate(name: str) -> None:
    q = chain(LEVELS if name != "sweep" else LEVELS // 3, STEPS[name])
    out = sy.evaluate(q, jax.random.key(0), particles=2, engine="universal")
    assert np.isfinite(out.log_z)
    assert set(out.trace) == {"a"}


def test_both_engines_agree_on_a_deep_program() -> None:
    q: Any = MODEL
    for number in range(150):
        # Each resampling takes long to compile.
        q = STEPS["rename" if number % 10 else "resample"](q)
    left, right = (sy.evaluate(q, jax.random.key(0), particles=3, engine=e) for e in ("vectorized", "universal"))
    np.testing.assert_allclose(left.log_weight, right.log_weight, rtol=1e-5)
    np.testing.assert_array_equal(left.trace["a"], right.trace["a"])


def test_a_thousand_combinators_one_after_the_other() -> None:
    """A filter that is written out, half of them compose and half resample: its density is asked for as a whole."""

    def later(t: int) -> Table:
        return Table((Sample(f"a{t}", ((0.38, 0.62), (0.94, 0.06))),))

    q: Any = MODEL
    for t in range(LEVELS // 2):
        q = sy.compose(later(t), sy.resample(q))
    out = sy.evaluate(q, jax.random.key(0), particles=1, engine="universal")
    trace = {a: int(out.trace[a][0]) for a in out.trace}
    assert len(trace) == LEVELS // 2 + 1
    expected = sum(float(rho[0]) for rho in out.log_density.values())
    np.testing.assert_allclose(sy.log_density(q, trace), expected, rtol=1e-4)


def test_deep_programs_are_described_and_shown() -> None:
    q = chain(LEVELS, STEPS["propose"])
    assert "..." in describe(q) and len(describe(q)) < 1000
    stream = io.StringIO()
    sy.show(q, console=Console(file=stream, width=10_000))
    assert stream.getvalue().count("propose") == LEVELS


def test_deep_programs_are_checked() -> None:
    assert [remark.kind for remark in sy.check(chain(100, STEPS["propose"]))] == []
