"""`load`: what was learned, without the run; wrong models, damaged files and missing folders say so."""

import pickle
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from tests.training.programs import ARGUMENTS, content, exact, identical, square

ADAM = optax.adam(0.1)


def models() -> dict[str, Any]:
    return {
        "net": eqx.nn.Linear(2, 3, key=jax.random.key(0)),
        "scale": 0.5,
        "two words": jnp.zeros((2, 3)),
        "none [0] float32[1]": jnp.zeros((0, 2)),
        "count": 4,
    }


def loss(m: Any) -> Any:
    return square(m["net"].weight) + square(m["scale"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sy.TrainResult]:
    folder = tmp_path_factory.mktemp("run")
    return folder, sy.train(exact(loss), models(), optimizer=ADAM, checkpoint=folder, **ARGUMENTS)


def test_the_models_of_a_checkpoint(run: tuple[Path, sy.TrainResult], monkeypatch: pytest.MonkeyPatch) -> None:
    def unpickled(*_: Any, **__: Any) -> None:
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, unpickled)
    folder, result = run
    before = content(folder)
    # Other numbers in `like` do not matter.
    like = jax.tree.map(lambda x: x + 1 if eqx.is_inexact_array(x) else x, models())
    found = sy.load(str(folder), like=like)
    assert identical(found, result.models)
    assert type(found["net"]) is eqx.nn.Linear and found["count"] == 4
    assert content(folder) == before


def test_other_models_are_named(run: tuple[Path, sy.TrainResult]) -> None:
    folder, _ = run
    other = eqx.nn.Linear(2, 4, key=jax.random.key(0))
    with pytest.raises(sy.CheckpointError, match=r"models\['net'\].bias is float32\[3\] there, float32\[4\] in `like`"):
        sy.load(folder, like={**models(), "net": other})
    with pytest.raises(sy.CheckpointError, match=r"`like` has models\['new'\], which was not learned there"):
        sy.load(folder, like={**models(), "new": jnp.zeros(3)})
    with pytest.raises(sy.CheckpointError, match=r"it has models\['scale'\], which `like` lacks"):
        sy.load(folder, like={**models(), "scale": 1})
    with pytest.raises(sy.CheckpointError, match=r"float32\[\] there, bfloat16\[\] in `like`"):
        sy.load(folder, like={**models(), "scale": jnp.asarray(0.5, jnp.bfloat16)})
    with pytest.raises(sy.CheckpointError, match="; and 3 more"):
        sy.load(folder, like=[jnp.zeros(3)])


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(sy.CheckpointError, match="no directory"):
        sy.load(tmp_path / "none", like=models())
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(sy.CheckpointError, match="no checkpoint"):
        sy.load(tmp_path / "empty", like=models())
    assert not list((tmp_path / "empty").iterdir())


def test_only_what_was_trained_is_loaded(tmp_path: Path) -> None:
    start = {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray(2.0)}
    given = {**ARGUMENTS, "steps": 3, "optimizer": optax.adamw(0.1, weight_decay=0.1), "checkpoint": tmp_path}
    result = sy.train(
        exact(lambda m: square(m["a"]) + square(m["b"])), start, trainable={"a": False, "b": True}, **given
    )
    np.testing.assert_array_equal(result.models["a"], start["a"])
    assert result.models["b"] != start["b"]
    found = sy.load(tmp_path, like={"a": jnp.zeros(7), "b": 0.0}, trainable=lambda name, x: name == "b")
    assert found["a"].shape == (7,) and found["b"] == result.models["b"]
    with pytest.raises(
        sy.CheckpointError, match=r"models\['a'\], which was not learned.*with the `trainable` of the run"
    ):
        sy.load(tmp_path, like=start)
    state = next(tmp_path.glob("*/state"))
    largest = max((path for path in state.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    largest.write_bytes(b"\0" * 50)
    with pytest.raises(sy.CheckpointError, match="step 3 is damaged"):
        sy.load(tmp_path, like=start, trainable={"a": False, "b": True})
