"""Two processes on this machine, connected as two hosts would be."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "many_hosts.py"
SIZES = ["--particles", "64", "--steps", "600"]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Started:
    """Processes that end with the test."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, devices: int = 1) -> subprocess.Popen[str]:
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
        command = [sys.executable, "-u", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.processes.append(subprocess.Popen(command, env={**os.environ, "XLA_FLAGS": flags}, **pipes))
        return self.processes[-1]

    def pair(self, *arguments: str) -> list[subprocess.Popen[str]]:
        shared = [*arguments, "--processes", "2", "--coordinator", f"127.0.0.1:{free_port()}"]
        return [self(*shared, "--process", str(i)) for i in range(2)]


@pytest.fixture
def start() -> Iterator[Started]:
    started = Started()
    yield started
    for process in started.processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def results(text: str) -> dict[str, str]:
    """Return the lines that tell bits of results."""
    return dict(re.findall(r"^(particles|trained|log Z) (.*)$", text, re.MULTILINE))


@pytest.mark.long
def test_a_run_of_two_processes_that_was_killed_goes_on(start: Started, tmp_path: Path) -> None:
    """Its results are those of one process with as many devices, which was never interrupted, to the last bit."""
    alone = start(str(EXAMPLE), *SIZES, devices=2)
    run = [str(EXAMPLE), *SIZES, "--checkpoint", str(tmp_path / "run"), "--timeout", "10"]
    first, second = start.pair(*run)
    assert first.stdout is not None
    before: list[str] = []
    for line in iter(first.stdout.readline, ""):
        before.append(line)
        if line.startswith("step "):
            break
    second.send_signal(signal.SIGKILL)
    for line in iter(first.stdout.readline, ""):
        before.append(line)
        # The connection is gone, or the coordinator misses its heartbeat: either way it is told, and the process ends.
        if "Connection closed by peer" in line or "heartbeat timeout" in line:
            break
    assert "Connection closed" in before[-1] or "heartbeat" in before[-1], "".join(before)
    assert not any(line.startswith("trained") for line in before)
    first.kill()
    first.wait()
    again, other = start.pair(*run)
    found, _ = again.communicate(timeout=100)
    other.communicate(timeout=100)
    expected, _ = alone.communicate(timeout=100)
    assert again.returncode == other.returncode == alone.returncode == 0, found
    assert len(results(expected)) == 3 and results(found) == results(expected)
    steps = re.findall(r"^step (\d+)$", found, re.MULTILINE)
    assert int(steps[0]) > 16, "it began anew"
