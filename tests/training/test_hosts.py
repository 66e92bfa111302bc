"""Two processes on this machine, connected as two hosts would be."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import Started, processes

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "many_hosts.py"
SIZES = ["--particles", "64", "--steps", "600"]


@pytest.fixture
def start() -> Iterator[Started]:
    with processes() as started:
        yield started


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
