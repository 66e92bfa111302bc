"""Particles over many devices."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpyro.distributions as dist
import pytest

import steelyard as sy
from benchmarks import networks


def test_eight_devices() -> None:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "tests.engines.many_devices"]
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_projected_costs_are_those_of_the_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "scaling.md"
    assert networks.markdown() in page.read_text()


@pytest.mark.usefixtures("as_users_run_it")
def test_wrong_meshes() -> None:
    def model(s: sy.State) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))

    key, mesh = jax.random.key(0), jax.make_mesh((1,), ("particles",))
    with pytest.raises(sy.ArgumentError, match="mesh is a mesh of devices"):
        sy.evaluate(model, key, particles=4, mesh=4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(sy.ArgumentError, match="universal engine"):
        sy.evaluate(model, key, particles=4, mesh=mesh, engine="universal")
