"""One run holds a folder at a time, in one process or in several; folders that cannot be used are found at once."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import steelyard as sy
from steelyard.training.lock import NAME, Busy, locked
from tests.training.programs import ARGUMENTS, content, exact, identical, square

HOLD = """
import sys, time
from pathlib import Path
from steelyard.training.lock import Busy, locked
try:
    with locked(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except Busy:
    print("busy", flush=True)
"""


def run(directory: Any, **arguments: Any) -> sy.TrainResult:
    given = {**ARGUMENTS, "optimizer": optax.adam(0.1), "checkpoint": directory, **arguments}
    return sy.train(exact(square), jnp.zeros(3), **given)


@pytest.fixture
def hold() -> Iterator[Callable[[Path, float], "subprocess.Popen[str]"]]:
    """A function that starts a process which holds a folder for a while."""
    with ExitStack() as stack:

        def start(folder: Path, seconds: float) -> "subprocess.Popen[str]":
            command = [sys.executable, "-c", HOLD, str(folder), str(seconds)]
            return stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

        yield start


def answer(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_another_process_holds_the_folder_until_it_is_killed(tmp_path: Path, hold: Any) -> None:
    process = hold(tmp_path, 600)
    assert answer(process) == "held"
    before = content(tmp_path)
    with pytest.raises(sy.CheckpointError, match=rf"in use by another run \(process {process.pid} on .*Wait until"):
        run(tmp_path)
    assert content(tmp_path) == before
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / NAME).exists()
    assert len(run(tmp_path).history) == 40
    assert not (tmp_path / NAME).exists()


@pytest.mark.long
def test_of_many_processes_that_start_at_once_one_holds_the_folder(tmp_path: Path, hold: Any) -> None:
    processes = [hold(tmp_path, 5) for _ in range(4)]
    assert sorted(map(answer, processes)) == ["busy", "busy", "busy", "held"]
    for process in processes:
        process.wait()
    assert not list(tmp_path.iterdir())


def test_of_many_threads_never_two_hold_it(tmp_path: Path) -> None:
    """The file is removed by whoever held it, while others have it open."""
    inside, most, held, ended = 0, 0, 0, time.monotonic() + 3.0
    guard = threading.Lock()

    def work(_: int) -> None:
        nonlocal inside, most, held
        while time.monotonic() < ended:
            try:
                with locked(tmp_path):
                    with guard:
                        inside, held = inside + 1, held + 1
                        most = max(most, inside)
                    time.sleep(0.0001)
                    with guard:
                        inside -= 1
            except Busy:
                pass

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert most == 1 and held > 100


def test_threads_train_at_the_same_time_in_folders_of_their_own_and_not_in_the_same_one(tmp_path: Path) -> None:
    together = threading.Barrier(2)

    def one(directory: Path) -> sy.TrainResult | sy.CheckpointError:
        def callback(result: sy.TrainResult) -> None:
            if len(result.history) == 16:
                together.wait(60)

        try:
            return run(directory, callback=callback)
        except sy.CheckpointError as error:
            together.wait(60)
            return error

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(one, [tmp_path / "a", tmp_path / "b"])
        assert identical(first, second) and identical(first, run(tmp_path / "a"))
        found = list(threads.map(one, [tmp_path / "c", tmp_path / "c"]))
    (error,) = (x for x in found if isinstance(x, sy.CheckpointError))
    assert "in use by another run" in str(error)
    (result,) = (x for x in found if isinstance(x, sy.TrainResult))
    assert identical(result, first)


def test_a_run_that_fails_leaves_the_folder_free(tmp_path: Path) -> None:
    def callback(result: sy.TrainResult) -> None:
        raise ZeroDivisionError("my own")

    with pytest.raises(ZeroDivisionError):
        run(tmp_path, callback=callback)
    with pytest.raises(sy.CheckpointError, match="in use"):
        run(tmp_path, callback=lambda result: run(tmp_path) and None)
    assert len(run(tmp_path).history) == 40
