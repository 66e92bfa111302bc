"""Checkpoints: whole or not at all, never of another run, and nothing else is ever touched."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from tests.training.programs import ARGUMENTS, content, exact, identical, network_run, square, unbroken

# Orbax goes on with the arrays that it reads at the same time when one of them turns out to be damaged.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")

SMALL: dict[str, Any] = {**ARGUMENTS, "optimizer": optax.adam(0.1)}


def small_run(directory: Path, models: Any = None, **arguments: Any) -> sy.TrainResult:
    def loss(models: Any, *datum: Any) -> Any:
        return sum(square(m) for m in jax.tree.leaves(models))

    models = jnp.zeros(3) if models is None else models
    return sy.train(exact(loss), models, checkpoint=directory, **{**SMALL, **arguments})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of a run of forty steps."""
    directory = tmp_path_factory.mktemp("made") / "run"
    small_run(directory, checkpoint_seconds=-1.0)
    return directory


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


def refused(path: Path, message: str, **arguments: Any) -> None:
    """Check that a run is refused, says why, and leaves everything as it is."""
    before = content(path.parent)
    with pytest.raises(sy.CheckpointError, match=message) as caught:
        small_run(path, **arguments)
    assert str(path) in str(caught.value) and "left as it is" in str(caught.value)
    assert content(path.parent) == before


def test_more_steps_continue_where_the_run_ended(tmp_path: Path) -> None:
    seen: list[int] = []
    network_run(steps=35, checkpoint=tmp_path / "a" / "run")
    result = network_run(checkpoint=tmp_path / "a" / "run", callback=lambda r: seen.append(len(r.history)))
    assert seen[0] > 35
    assert identical(result, unbroken())


def test_a_finished_run_gives_its_result_again(directory: Path, tmp_path: Path) -> None:
    before, calls = content(directory), []
    again = small_run(directory, callback=calls.append)
    fresh = small_run(tmp_path / "fresh")
    assert identical(again, fresh)
    assert jax.tree.map(type, again) == jax.tree.map(type, fresh)
    assert not calls and not again.interrupted
    assert content(directory) == before


def test_the_newest_two_are_kept(made: Path) -> None:
    steps = sorted(int(path.name) for path in made.iterdir())
    assert len(steps) == 2 and steps[-1] == 40


def test_without_the_newest_one_the_run_goes_on_from_the_older(directory: Path, tmp_path: Path) -> None:
    shutil.rmtree(directory / "40")
    assert identical(small_run(directory), small_run(tmp_path / "fresh"))


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "another key": ({"key": jax.random.key(1)}, r"key was \[0, 0\], now \[0, 1\]"),
    "other particles": ({"particles": 7}, "particles was 3, now 7"),
    "other shapes": ({"models": jnp.zeros(4)}, r"float32\[3\], now .*float32\[4\]"),
    "another type": ({"models": jnp.zeros(3, jnp.float16)}, r"float32\[3\], now .*float16\[3\]"),
    "another structure": ({"models": [jnp.zeros(3)]}, "other shapes"),
    "another optimiser": ({"optimizer": optax.sgd(0.1)}, "the parameters or the optimiser have other shapes"),
    "fewer steps": ({"steps": 30}, "step 40, now only 30 steps"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_run_is_refused(other: str, directory: Path) -> None:
    arguments, message = OTHERS[other]
    refused(directory, message, **arguments)


def test_minibatches_of_another_size_are_another_run(tmp_path: Path) -> None:
    small_run(tmp_path / "run", data=np.zeros(8), batch_size=2)
    refused(tmp_path / "run", "batch_size was 2, now 4", data=np.zeros(8), batch_size=4)


def a_file(path: Path) -> None:
    path.write_text("mine")


def a_folder_with(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("mine")

    return make


FOREIGN = {
    "a file": (a_file, "it is a file"),
    "notes": (a_folder_with("notes.txt"), "'notes.txt'"),
    "a hidden file": (a_folder_with(".git/HEAD"), "'.git'"),
    "a file with a number for a name": (a_folder_with("12"), "'12'"),
    "a file whose name begins with a number": (a_folder_with("12.txt"), "'12.txt'"),
    "a folder whose name begins with a number": (a_folder_with("3.11-notes/x"), "'3.11-notes'"),
    "a folder with a number for a name": (a_folder_with("2024/photo.jpg"), "'2024'"),
}


@pytest.mark.parametrize("thing", FOREIGN)
def test_a_directory_with_something_else_is_refused(thing: str, tmp_path: Path) -> None:
    make, message = FOREIGN[thing]
    make(tmp_path / "run")
    refused(tmp_path / "run", message)


@pytest.mark.parametrize("name", ["notes.txt", "7/photo.jpg", "7/default/manifest.ocdbt"])
def test_something_else_among_the_checkpoints_is_refused(name: str, directory: Path) -> None:
    a_folder_with(name)(directory)
    refused(directory, repr(name.split("/")[0]))


@pytest.mark.parametrize("size", [0, 10])
def test_a_checkpoint_that_was_cut_off_is_refused(size: int, directory: Path) -> None:
    for path in (directory / "40").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:size])
    refused(directory, "step 40 is damaged.*Remove the folder 40")


def test_an_optimiser_with_keys_and_empty_arrays_can_be_saved(tmp_path: Path) -> None:
    models = {"a": jnp.zeros(3), "empty": jnp.zeros((0, 2))}
    noisy = optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(7)), optax.sgd(0.1))

    def run(**arguments: Any) -> sy.TrainResult:
        return sy.train(exact(lambda m: square(m["a"])), models, **{**SMALL, "optimizer": noisy, **arguments})

    run(steps=15, checkpoint=tmp_path / "run")
    assert identical(run(checkpoint=tmp_path / "run"), run())
