"""Runs as processes of their own that are killed and interrupted, and started again with the same command."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.training.run import STEPS

ROOT = Path(__file__).parents[2]


class Run:
    """The runs of one test: the same command each time."""

    def __init__(self, folder: Path, compiled: Path) -> None:
        self.checkpoint = folder / "checkpoints"
        self.out = folder / "out.npz"
        # Compiled once for all processes: most of their time would go there.
        cache = {"JAX_COMPILATION_CACHE_DIR": str(compiled), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        self.environment = {**os.environ, **cache}

    def start(self, *options: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.training.run", "--out", str(self.out), *options]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=pipe, stderr=pipe, text=True)

    def resume(self, *options: str) -> "subprocess.Popen[str]":
        return self.start("--checkpoint", str(self.checkpoint), *options)

    def result(self, process: "subprocess.Popen[str]") -> dict[str, np.ndarray]:
        """Wait for a process that is to end by itself, and return what it learned."""
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        with np.load(self.out) as arrays:
            return dict(arrays)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def run(tmp_path: Path, compiled: Path) -> Run:
    return Run(tmp_path, compiled)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> dict[str, np.ndarray]:
    run = Run(tmp_path_factory.mktemp("unbroken"), compiled)
    return run.result(run.start())


def lines(process: "subprocess.Popen[str]", count: int) -> list[int]:
    """Return the first numbers of steps that a process reports."""
    assert process.stdout is not None
    found = [process.stdout.readline().strip() for _ in range(count)]
    assert all(found), process.communicate()[1]
    return [int(line) for line in found]


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.long
def test_a_run_that_is_killed_again_and_again_ends_where_an_unbroken_one_ends(
    run: Run, unbroken: dict[str, np.ndarray]
) -> None:
    moments = []
    for _ in range(3):
        process = run.resume()
        *_, steps = lines(process, random.randint(1, 7))
        delay = random.uniform(0.0, 0.1)
        time.sleep(delay)
        process.kill()
        process.communicate()
        moments.append((steps, delay))
    last = run.resume()
    (first,) = lines(last, 1)
    assert first > moments[-1][0] > moments[0][0], moments
    assert equal(run.result(last), unbroken), moments
    # Nothing is left of the checkpoints that were being written.
    assert sorted(path.name for path in run.checkpoint.iterdir() if not path.name.isdigit()) == []
    assert len(list(run.checkpoint.iterdir())) == 2


def after_a_few_steps(process: "subprocess.Popen[str]", run: Run) -> None:
    lines(process, 2)
    time.sleep(random.uniform(0.0, 0.1))


def while_a_checkpoint_is_written(process: "subprocess.Popen[str]", run: Run) -> None:
    lines(process, 2)
    until = time.monotonic() + 60.0
    while not list(run.checkpoint.glob("*.orbax-checkpoint-tmp*/state*")):
        assert process.poll() is None and time.monotonic() < until


@pytest.mark.parametrize(
    "moment", [pytest.param(after_a_few_steps, marks=pytest.mark.long), while_a_checkpoint_is_written]
)
def test_ctrl_c_keeps_what_was_learned(
    moment: Callable[["subprocess.Popen[str]", Run], None], run: Run, unbroken: dict[str, np.ndarray]
) -> None:
    process = run.resume("--pause", "0.02")
    moment(process, run)
    process.send_signal(signal.SIGINT)
    result = run.result(process)
    made = len(result["loss"])
    assert result["interrupted"] and 5 <= made < STEPS
    np.testing.assert_array_equal(result["loss"], unbroken["loss"][:made])
    assert str(made) in {path.name for path in run.checkpoint.iterdir()}
    assert equal(run.result(run.resume()), unbroken)
