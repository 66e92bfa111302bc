"""What a release is made of: one version everywhere, and a wheel that installs and runs on its own."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VERSION = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
SMOKE = """
import jax, numpyro.distributions as dist, steelyard as sy
print(sy.__file__)
print(sy.evaluate(lambda s: s.sample("z", dist.Normal(0.0, 1.0)), jax.random.key(0), particles=3).particles)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_workflow_runs_the_tests_for_every_python_that_is_announced() -> None:
    announced = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert f"python: {announced}".replace("'", '"') in workflow and "run: make test" in workflow


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if not name.startswith(f"steelyard-{VERSION}.dist-info/")}
    sources = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if sources.returncode == 0:
        assert package == {name.removeprefix("src/") for name in sources.stdout.splitlines()}
    assert {"steelyard/py.typed", "steelyard/experiments/tracking/parameters/apg.safetensors"} <= package


def test_the_metadata_say_what_it_is(wheel: Path) -> None:
    folder = f"steelyard-{VERSION}.dist-info"
    metadata = message_from_string(zipfile.ZipFile(wheel).read(f"{folder}/METADATA").decode())
    assert metadata["Version"] == VERSION and metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert set(metadata.get_all("Provides-Extra", [])) >= {"arviz", "mcmc"}


def test_the_wheel_runs_where_its_requirements_are_installed(wheel: Path, tmp_path: Path) -> None:
    """Not the editable installation: a virtual environment of its own, which borrows what the package requires."""
    venv.create(tmp_path, with_pip=False)
    place = next(tmp_path.glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(place)
    borrowed = next(path for path in sys.path if path.endswith("site-packages"))
    # A folder on a .pth line is searched last, and the .pth files inside it are not read.
    (place / "borrowed.pth").write_text(borrowed + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(tmp_path / "bin" / "python"), "-I", "-c", SMOKE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    where, particles = done.stdout.split()
    assert Path(where).is_relative_to(place) and particles == "3"
