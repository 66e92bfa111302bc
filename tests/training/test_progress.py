"""What a run shows: a bar in a terminal, lines elsewhere, nothing if it is told so."""

import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import steelyard as sy
from steelyard.training import train as module
from tests.training.programs import ARGUMENTS, exact, square


def run(**arguments: Any) -> sy.TrainResult:
    given = {**ARGUMENTS, "optimizer": optax.sgd(0.1), "progress": True, **arguments}
    return sy.train(exact(square), jnp.zeros(()), **given)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that runs in a pseudo-terminal, and gives what is written there."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def run_there(**arguments: Any) -> str:
        master, slave = pty.openpty()
        written = bytearray()
        reader = threading.Thread(target=read_all, args=(master, written))
        reader.start()
        with open(slave, "w") as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", file)
            run(**arguments)
        reader.join()
        return written.decode()

    return run_there


def read_all(master: int, written: bytearray) -> None:
    try:
        while data := os.read(master, 4096):
            written += data
    except OSError:  # Linux: the other end was closed
        pass
    os.close(master)


def test_a_bar_in_a_terminal(terminal: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    written = terminal()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert "\x1b[" in written and "━" in plain
    assert "40/40" in plain
    assert re.search(r"loss \S+, log Z \S+, ESS 3", plain)
    assert "\x1b[?25h" in written  # the cursor is shown again
    assert capsys.readouterr() == ("", "")


def test_a_finished_run_shows_that_it_is_finished(terminal: Callable[..., str], tmp_path: Path) -> None:
    run(checkpoint=tmp_path / "run", progress=False)
    assert "40/40" in terminal(checkpoint=tmp_path / "run")


def test_lines_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_AT_ONCE", 0.0)
    run(steps=200)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == "" and "\x1b" not in captured.err
    assert 10 <= len(lines) <= 20
    assert lines[0].startswith("step 16 of 200: loss ")
    assert re.fullmatch(r"step 200 of 200: loss \S+, log Z \S+, ESS 3", lines[-1])


def test_nothing_if_told_so(terminal: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    assert terminal(progress=False) == ""
    run(progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_run_that_goes_on_says_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(checkpoint=tmp_path, steps=31, progress=False)
    assert capsys.readouterr().err == ""
    run(checkpoint=tmp_path)
    assert capsys.readouterr().err.splitlines()[0] == "goes on at step 32 of 40"
    run(checkpoint=tmp_path)
    assert capsys.readouterr().err.splitlines()[0] == "all 40 steps were made before"
