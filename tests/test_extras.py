"""An environment with the requirements alone: everything is there but what an extra brings, and that says so."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement

import steelyard as sy

SCRIPT = """
import importlib.util, jax, numpyro.distributions as dist, steelyard as sy
from steelyard.experiments.tracking.rows import TUNED, hamiltonian

absent = [name for name in ("arviz", "pandas", "xarray", "blackjax", "flax") if importlib.util.find_spec(name) is None]
print("absent:", *absent)

def model(s):
    s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), 0.5)

out = sy.evaluate(model, jax.random.key(0), particles=3)
print("particles:", out.particles)
for call in (out.to_arviz, out.to_dataframe, lambda: hamiltonian(2, TUNED)):
    try:
        call()
    except sy.ArgumentError as error:
        print("error:", error)
"""


def required(package: str, found: set[str]) -> set[str]:
    """Return a package and what it requires, without extras that nobody asks for."""
    waiting = [(package, frozenset[str]())]
    while waiting:
        name, extras = waiting.pop()
        for text in requires(name) or ():
            need = Requirement(text)
            asked = [{"extra": extra} for extra in (*extras, "")]
            if need.marker is not None and not any(map(need.marker.evaluate, asked)):
                continue
            key = re.sub(r"[-_.]+", "-", need.name).lower()
            try:
                distribution(key)
            except PackageNotFoundError:
                continue
            if key not in found:
                found.add(key)
                waiting.append((key, frozenset(need.extras)))
    return found


def test_each_extra_that_is_absent_says_how_to_get_it(tmp_path: Path) -> None:
    for name in required("steelyard", set()):
        for file in distribution(name).files or ():
            top, link = file.parts[0], tmp_path / file.parts[0]
            if top not in ("..", "__pycache__") and not link.exists():
                link.symlink_to(Path(str(distribution(name).locate_file(top))))
    source = Path(str(sy.__file__)).parent.parent
    # Without `site`, so that nothing else that is installed is seen.
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{tmp_path}", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[:2] == ["absent: arviz pandas xarray blackjax flax", "particles: 3"]
    assert [re.findall(r"pip install '(.*)'", line) for line in lines[2:]] == [
        ["steelyard[arviz]"],
        ["steelyard[arviz]"],
        ["steelyard[mcmc]"],
    ]
