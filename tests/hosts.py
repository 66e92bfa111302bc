"""Processes on this machine, connected as hosts would be."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Started:
    """Processes that end with the test."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, devices: int = 1) -> subprocess.Popen[str]:
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
        command, env = [sys.executable, "-u", *arguments], {**os.environ, "XLA_FLAGS": flags}
        started = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.processes.append(started)
        return started

    def pair(self, *arguments: str) -> list[subprocess.Popen[str]]:
        """Start two processes that know of each other."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{s.getsockname()[1]}"
        shared = [*arguments, "--processes", "2", "--coordinator", address]
        return [self(*shared, "--process", str(i)) for i in range(2)]


@contextmanager
def processes() -> Iterator[Started]:
    """Start processes, and kill in the end what is left of them."""
    started = Started()
    try:
        yield started
    finally:
        for process in started.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
