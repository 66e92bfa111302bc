"""`make laws` says what it did, and how to repeat what failed."""

import sys
from typing import Any

import pytest

from tests.laws import laws, run
from tests.laws.strategies import Example


def passes(example: Example, seed: int) -> None:
    """A law that every program obeys."""


def fails_for_several_particles(example: Example, seed: int) -> None:
    assert example.particles == 1, "there are several"


def call(monkeypatch: pytest.MonkeyPatch, law: Any, *options: str) -> int:
    monkeypatch.setattr(laws, "LAWS", {"a law": law})
    monkeypatch.setattr(sys, "argv", ["laws", *options])
    return run.main()


def test_a_run_without_failures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, passes, "--examples", "3", "--seed", "7") == 0
    assert "3 examples in" in (printed := capsys.readouterr().out)
    assert "SEED=7: 0 broke a law" in printed


def test_each_run_has_a_new_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first = [(call(monkeypatch, passes, "--examples", "1"), capsys.readouterr().out.split()[2]) for _ in range(2)]
    assert first[0][1].startswith("SEED=")
    assert first[0] != first[1]


def test_a_failure_is_repeated_by_the_command_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, fails_for_several_particles, "--examples", "5", "--seed", "3") == 1
    printed = capsys.readouterr().out
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  make laws")]
    assert commands
    assert "AssertionError: there are several" in printed
    seed, only = (word.split("=")[1] for word in commands[0].split()[2:])
    assert call(monkeypatch, fails_for_several_particles, "--seed", seed, "--only", only) == 1
    again = capsys.readouterr().out
    assert again.split("The smallest part")[1].splitlines()[1] in printed


def test_an_interruption_says_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []

    def interrupted(example: Example, seed: int) -> None:
        ran.append(seed)
        if len(ran) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "CHUNK", 1)
    monkeypatch.setattr(run, "_reports", lambda seed, numbers, _: map(lambda n: run.check(seed, n), numbers))
    assert call(monkeypatch, interrupted, "--examples", "4", "--seed", "3") == 1
    assert "interrupted\n1 examples in" in capsys.readouterr().out
