"""Every public name has a docstring with an example that runs."""

import doctest
import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

import steelyard as sy

MODULES = [sy, sy.objectives, sy.algorithms, sy.testing, sy.plot]
# Methods of `Evaluation` that rules call, and users do not.
FOR_RULES = {"as_arguments", "finished", "reindex", "rename", "then"}


def public() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name, value in vars(module).items():
            if not name.startswith("_") and callable(value):
                yield f"{module.__name__}.{name}", value
    for name, method in vars(sy.Evaluation).items():
        if not name.startswith("_") and inspect.isfunction(method) and name not in FOR_RULES:
            yield f"steelyard.Evaluation.{name}", method
    for method in (sy.Evaluation.to_arviz, sy.Evaluation.to_dataframe):
        yield f"steelyard.Evaluation.{method.__name__}", method
    yield "steelyard.State.when", sy.State.when


@pytest.mark.parametrize(("name", "value"), list(public()), ids=[name for name, _ in public()])
@pytest.mark.usefixtures("as_users_run_it")
def test_the_example_runs(name: str, value: Any) -> None:
    tests = [test for test in doctest.DocTestFinder(recurse=False).find(value, name) if test.examples]
    assert tests, f"{name} has no example"
    runner = doctest.DocTestRunner(verbose=False)
    for test in tests:
        assert runner.run(test).failed == 0


def test_the_package_has_public_names_and_nothing_else() -> None:
    lines = inspect.getsource(sy).splitlines()
    statements = [line for line in lines if line and not line.startswith(('"""', "#"))]
    assert all(line.startswith("from steelyard") and " as " in line for line in statements)


def test_a_signature_shows_names_and_not_what_they_stand_for() -> None:
    signatures = {name: str(inspect.signature(value)) for name, value in public() if inspect.isfunction(value)}
    assert not [name for name, signature in signatures.items() if "steelyard.language.programs" in signature]


def test_programs_and_what_becomes_one_are_public() -> None:
    hints = get_type_hints(sy.propose)
    assert hints["p"] == hints["q"] == sy.Programmable
    assert issubclass(hints["return"], sy.Program)
