"""Seeds side by side, on as many devices as there are cores."""

import os
import subprocess
import sys

import jax.numpy as jnp

from steelyard.experiments.annealing.cores import OPTIONS, known
from steelyard.experiments.annealing.settings import Cell
from steelyard.experiments.annealing.train import _set_up

COMMAND = """
import sys
import jax
from steelyard import cli
cli.app = lambda: print(len(jax.devices("cpu")))
sys.argv = ["steelyard", "table1"]
cli.main()
"""


def test_what_comes_back_can_be_given_again_without_compiling_again() -> None:
    runs, advance, pace = _set_up(Cell("AVO", 2, 2, 3, 12))
    runs, _ = advance(runs, jnp.asarray(0), pace)
    advance(runs, jnp.asarray(0), pace)
    assert advance._cache_size() == 1


def test_the_command_has_a_device_for_every_core() -> None:
    run = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(os.cpu_count())]


def test_options_that_the_compiler_does_not_have_are_left_out() -> None:
    assert known({**OPTIONS, "xla_cpu_no_such_option": True}) == OPTIONS
