"""Folders for checkpoints: of any name, reached by links, full, or unfit, which is found before anything is trained."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import steelyard as sy
from steelyard.training.lock import locked
from tests.training.programs import ARGUMENTS, content, exact, identical, square


def run(directory: Any, **arguments: Any) -> sy.TrainResult:
    given = {**ARGUMENTS, "optimizer": optax.adam(0.1), "checkpoint": directory, **arguments}
    return sy.train(exact(square), jnp.zeros(3), **given)


def test_a_folder_may_have_any_name_and_be_reached_by_a_link(tmp_path: Path) -> None:
    real = tmp_path / "é ж %d 'q' #"
    link = tmp_path / "link"
    link.symlink_to(real, target_is_directory=True)
    real.mkdir()
    run(real, steps=15)
    with locked(link), pytest.raises(sy.CheckpointError, match="in use"):
        run(real)
    seen: list[int] = []
    result = run(link, callback=lambda result: seen.append(len(result.history)))
    assert seen[0] > 15 and identical(result, run(real)) and identical(result, run(None))


@pytest.mark.parametrize("where", ["file/below", "dangling", "x" * 300], ids=["below a file", "dangling", "long"])
def test_a_folder_that_cannot_be_written_is_found_before_anything_is_trained(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    before, calls = content(tmp_path), []
    with pytest.raises(sy.CheckpointError, match="cannot be written .*Choose another directory"):
        run(tmp_path / where, callback=calls.append)
    assert not calls and content(tmp_path) == before


@pytest.mark.parametrize("name", ["[bold]", "a*", "a?", "a\\b", "\udcff"])
def test_a_name_under_which_checkpoints_would_be_lost_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(sy.CheckpointError, match="its path contains .*symbolic link"):
        run(tmp_path / name / "run")
    assert not list(tmp_path.iterdir())
    (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / name, target_is_directory=True)
    assert identical(run(tmp_path / "link"), run(tmp_path / "link"))


FULL = """
import resource, sys
from pathlib import Path
import jax, optax, steelyard as sy
from tests.training.programs import ARGUMENTS, exact, square

def small(result):
    # No file may be larger from now on: what a full disk answers, for this process.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

# Random numbers, because others would be written in a few bytes.
model = jax.random.normal(jax.random.key(0), (50_000,))
given = {**ARGUMENTS, "optimizer": optax.adam(0.1), "checkpoint": sys.argv[1]}
sy.train(exact(square), model, **{**given, "steps": 5})
before = sorted(path.name for path in Path(sys.argv[1]).iterdir())
try:
    sy.train(exact(square), model, **given, callback=small)
except sy.CheckpointError as error:
    assert "step 40 could not be written" in str(error) and sys.argv[1] in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
seen = []
result = sy.train(exact(square), model, **given, callback=lambda result: seen.append(len(result.history)))
assert 5 < seen[0] <= 40 and len(result.history) == 40
assert not Path(sys.argv[1], ".steelyard-lock").exists()
print("as it should be")
"""


def test_a_full_disk_spoils_no_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "as it should be", done.stderr
