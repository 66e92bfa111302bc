"""Training over many devices."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("part", [[], pytest.param(["--long"], marks=pytest.mark.long)], ids=["errors", "results"])
def test_eight_devices(part: list[str]) -> None:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "tests.training.many_devices", *part]
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
