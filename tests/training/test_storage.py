"""What is written and read: every array, every kind of damage, Ctrl-C at any moment."""

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steelyard as sy
from steelyard.training.checkpoints import Checkpoints
from tests.training.programs import content, identical

# Orbax goes on with the arrays that it reads at the same time when one of them turns out to be damaged.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")

IDENTITY = {"key": [0, 0]}


def state(seed: int) -> dict[str, Any]:
    return {"w": jax.random.normal(jax.random.key(seed), (64, 64)), "count": jnp.asarray(seed), "loss": jnp.ones(seed)}


def load(directory: Path) -> Any:
    return Checkpoints(directory, IDENTITY).load(state)


def middle(data: bytes) -> bytes:
    start = len(data) // 2
    return data[:start] + bytes(255 - byte for byte in data[start : start + 4]) + data[start + 4 :]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "removed": lambda path: path.unlink(),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "four bytes changed": lambda path: path.write_bytes(middle(path.read_bytes())),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made") / "run"
    store = Checkpoints(directory, IDENTITY)
    store.save(10, state(10))
    store.save(20, state(20))
    return directory


def test_what_is_read_is_what_was_written(made: Path) -> None:
    assert identical(load(made), state(20))


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_file_is_damaged_nothing_wrong_is_read(damage: str, made: Path, tmp_path: Path) -> None:
    files = sorted(path.relative_to(made) for path in (made / "20").rglob("*") if path.is_file())
    errors = 0
    for index, file in enumerate(files):
        directory = shutil.copytree(made, tmp_path / str(index))
        DAMAGE[damage](directory / file)
        before = content(directory)
        try:
            assert identical(load(directory), state(20)), file
        except sy.CheckpointError as error:
            assert str(directory) in str(error) and "left as it is" in str(error)
            errors += 1
        assert content(directory) == before
    assert errors >= 3


def test_a_checkpoint_under_a_wrong_number_is_refused(made: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(made, tmp_path / "run")
    os.rename(directory / "20", directory / "30")
    before = content(directory)
    with pytest.raises(sy.CheckpointError, match="step 30 is damaged"):
        load(directory)
    assert content(directory) == before


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint32, jnp.bool, jnp.complex64])
def test_arrays_keep_their_type(dtype: Any, tmp_path: Path) -> None:
    array = {"x": jnp.asarray([0, 1, 1], dtype)}
    Checkpoints(tmp_path / "run", IDENTITY).save(1, array)
    found = Checkpoints(tmp_path / "run", IDENTITY).load(lambda steps: array)
    assert identical(found, array) and found["x"].dtype == dtype


def test_a_checkpoint_that_was_not_finished_is_not_read_and_is_written_anew(made: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(made, tmp_path / "run")
    os.rename(directory / "20", directory / "20.orbax-checkpoint-tmp")
    shutil.copytree(directory / "10", directory / "15.orbax-checkpoint-tmp")
    shutil.rmtree(directory / "15.orbax-checkpoint-tmp" / "state")
    store = Checkpoints(directory, IDENTITY)
    assert identical(store.load(state), state(10))
    store.save(20, state(20))
    assert identical(load(directory), state(20))
    assert {path.name for path in directory.iterdir()} == {"10", "20"}


def interrupt_when(pattern: str, directory: Path, ended: threading.Event) -> None:
    while not ended.is_set():
        if list(directory.glob(pattern)):
            os.kill(os.getpid(), signal.SIGINT)
            return


@pytest.mark.parametrize("pattern", ["20.orbax*", "20.orbax*/state*", "20.orbax*/state*/d"])
def test_ctrl_c_does_not_spoil_a_checkpoint_that_is_being_written(pattern: str, made: Path, tmp_path: Path) -> None:
    for index in range(4):
        directory = shutil.copytree(made, tmp_path / str(index))
        shutil.rmtree(directory / "20")
        store, ended = Checkpoints(directory, IDENTITY), threading.Event()
        watcher = threading.Thread(target=interrupt_when, args=(pattern, directory, ended))
        watcher.start()
        try:
            store.save(20, state(20))
            ended.set()
            watcher.join()
        except KeyboardInterrupt:
            watcher.join()
            store.save(20, state(20))
        assert identical(load(directory), state(20))
        np.testing.assert_array_equal(sorted(path.name for path in directory.iterdir()), ["10", "20"])
