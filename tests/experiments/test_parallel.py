"""Seeds side by side, on as many devices as there are cores."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.experiments.annealing.parallel import OPTIONS, known, over_seeds

SPREAD = """
import os
import jax
jax.config.update("jax_num_cpu_devices", os.cpu_count())
import jax.numpy as jnp
from steelyard.experiments.annealing.parallel import over_seeds
y = over_seeds(lambda x, a: a * x, 2 * os.cpu_count())(jnp.arange(2 * os.cpu_count()), 3)
print(len(y.sharding.device_set), y.tolist() == [3 * i for i in range(2 * os.cpu_count())])
"""

COMMAND = """
import sys
import jax
from steelyard import cli
cli.app = lambda: print(len(jax.devices("cpu")))
sys.argv = ["steelyard", "table1"]
cli.main()
"""


def test_every_seed_has_its_result() -> None:
    xs = jnp.arange(3.0)
    found = over_seeds(lambda x, a: (a * x, jax.random.key(0)), 3)(xs, 2.0)[0]
    np.testing.assert_array_equal(np.asarray(found), [0.0, 2.0, 4.0])


def test_what_comes_back_can_be_given_again_without_compiling_again() -> None:
    traced = []
    step = over_seeds(lambda x, a: traced.append(x) or x + a, 3)
    step(step(jnp.arange(3.0), jnp.asarray(1.0)), jnp.asarray(2.0))
    assert len(traced) == 1


def test_every_core_has_a_share() -> None:
    run = subprocess.run([sys.executable, "-c", SPREAD], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(os.cpu_count()), "True"]


def test_the_command_has_a_device_for_every_core() -> None:
    run = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(os.cpu_count())]


def test_options_that_the_compiler_does_not_have_are_left_out() -> None:
    assert known({**OPTIONS, "xla_cpu_no_such_option": True}) == OPTIONS
