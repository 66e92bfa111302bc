"""The grammar, and how programs name themselves."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import steelyard as sy
from steelyard.language.describe import describe
from steelyard.language.programs import Primitive, program


def f(s: sy.State, *args: Any) -> None: ...


def g(s: sy.State, *args: Any) -> None: ...


class Callable:
    def __call__(self, s: sy.State) -> None: ...


WRONG: dict[str, tuple[Any, list[str]]] = {
    "extend an inference program": (lambda: sy.extend(sy.resample(f), g), ["extend(p, f)", "resample(f)", "target(q)"]),
    "extend a compose": (lambda: sy.extend(sy.compose(f, g), g), ["compose(f, g)", "p must be a target program"]),
    "extend by an extend": (lambda: sy.extend(f, sy.extend(g, f)), ["extend(g, f)", "primitive", "extend twice"]),
    "extend by a propose": (lambda: sy.extend(f, sy.propose(g, f)), ["propose(g, f)", "primitive"]),
    "propose onto a resample": (
        lambda: sy.propose(sy.resample(f), g),
        ["propose(p, q)", "resample(f)", "propose(target"],
    ),
    "propose onto a move": (lambda: sy.propose(sy.move(f, g), g), ["propose(p, q)", "move(f, g)"]),
    "propose onto a renamed resample": (
        lambda: sy.propose(sy.rename(sy.resample(f), {"a": "b"}), g),
        ["rename(resample(f), {'a': 'b'})"],
    ),
    "prev of a compose": (lambda: sy.prev(sy.compose(f, g)), ["prev(f)", "compose(f, g)", "prev of its parts"]),
    "marginal of a propose": (lambda: sy.marginal(sy.propose(f, g)), ["marginal(p)", "propose(f, g)", "target(q)"]),
    "a number": (lambda: sy.resample(3), ["3 is not a program", "callable f(s, *args)"]),  # pyright: ignore
    "a string in compose": (lambda: sy.compose(f, "g"), ["'g' is not a program"]),  # pyright: ignore
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", WRONG)
def test_the_grammar_is_checked_when_a_program_is_built(name: str) -> None:
    build, expected = WRONG[name]
    with pytest.raises(sy.GrammarError) as error:
        build()
    for part in expected:
        assert part in str(error.value)
    assert isinstance(error.value, sy.SteelyardError)
    assert isinstance(error.value, TypeError)


def test_what_the_grammar_allows() -> None:
    p = sy.extend(sy.extend(sy.rename(f, {"a": "b"}), sy.prev(g)), sy.prev(sy.rename(sy.prev(g), {"c": "d"})))
    q = sy.propose(p, sy.move(g, sy.resample(sy.compose(sy.propose(f, g), sy.resample(p)))))
    assert sy.marginal(p) == sy.rename(f, {"a": "b"})
    assert describe(q) == (
        "propose(extend(extend(rename(f, {'a': 'b'}), prev(g)), prev(rename(prev(g), {'c': 'd'}))), "
        "move(g, resample(compose(propose(f, g), resample(extend(extend(rename(f, {'a': 'b'}), prev(g)), "
        "prev(rename(prev(g), {'c': 'd'}))))))))"
    )


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.5, float("nan")])
def test_thresholds_are_fractions(threshold: float) -> None:
    with pytest.raises(sy.ArgumentError, match=r"resample: threshold .* in \(0, 1\], got"):
        sy.resample(f, threshold=threshold)


@pytest.mark.usefixtures("as_users_run_it")
def test_unknown_methods_are_answered_with_the_known_ones() -> None:
    with pytest.raises(sy.ArgumentError, match="'lottery'.*systematic, stratified, multinomial, residual"):
        sy.resample(f, method="lottery")  # pyright: ignore


def test_programs_are_records_that_compare_by_what_they_are_made_of() -> None:
    assert sy.resample(sy.propose(f, g)) == sy.resample(sy.propose(f, g))
    assert sy.resample(sy.propose(f, g)) != sy.resample(sy.propose(g, f))
    assert sy.resample(f) != sy.resample(f, method="residual")
    assert sy.rename(f, {"a": "b", "c": "d"}) == sy.rename(f, {"c": "d", "a": "b"})
    assert len({sy.prev(f), sy.prev(f), sy.prev(g)}) == 2
    assert program(sy.prev(f)) is not None
    with pytest.raises(AttributeError):
        sy.prev(f).f = g  # pyright: ignore


def test_a_callable_says_where_it_is_written() -> None:
    line = f.__code__.co_firstlineno
    for wrapped in (f, partial(f, 1), partial(partial(f, 1), 2)):
        place = Primitive(wrapped).place
        assert place == f"f ({Path(__file__)}:{line})"
    assert Primitive(Callable()).place.startswith("Callable (")
    assert f"{Path(__file__).name}:" in Primitive(Callable()).place
    assert Primitive(lambda s: None).name == "<lambda>"
    assert Primitive(max).place == "max"
