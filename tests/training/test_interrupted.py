"""Callbacks: they see what was learned so far, may stop the run, and may be interrupted."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from steelyard.training import train as module
from tests.training.programs import ARGUMENTS, exact, identical, square


def run(callback: Any, **arguments: Any) -> sy.TrainResult:
    arguments = {**ARGUMENTS, "optimizer": optax.sgd(0.1), "callback": callback, **arguments}
    return sy.train(exact(square), jnp.zeros(()), **arguments)


@pytest.fixture(autouse=True)
def ten_steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS_AT_ONCE", 10)
    monkeypatch.setattr(module, "SECONDS_AT_ONCE", 1e9)


def after(steps: int) -> float:
    return 3.0 * (1.0 - 0.8**steps)


def test_a_callback_sees_the_run_so_far_and_may_stop_it() -> None:
    seen: list[sy.TrainResult] = []

    def callback(result: sy.TrainResult) -> bool:
        seen.append(result)
        return len(result.history) >= 20

    result = run(callback)
    assert [len(one.history) for one in seen] == [10, 20]
    for one in seen:
        np.testing.assert_allclose(one.models, after(len(one.history)), rtol=1e-5)
    assert result.interrupted and identical(result.models, seen[-1].models)
    assert len(result.history) == 20


@pytest.mark.parametrize("answer", [None, False, "no"])
def test_only_true_stops_the_run(answer: Any) -> None:
    result = run(lambda result: answer)
    assert len(result.history) == 40 and not result.interrupted


def test_stopping_after_the_last_step_is_no_interruption() -> None:
    assert not run(lambda result: len(result.history) == 40).interrupted


def test_ctrl_c_in_a_callback_keeps_what_was_learned() -> None:
    def callback(result: sy.TrainResult) -> None:
        if len(result.history) == 30:
            raise KeyboardInterrupt

    result = run(callback)
    assert result.interrupted and len(result.history) == 30
    np.testing.assert_allclose(result.models, after(30), rtol=1e-5)


def test_ctrl_c_while_compiling_leaves_the_models_as_they_were(tmp_path: Path) -> None:
    traced: list[Any] = []

    def program(m: Any) -> Any:
        traced.append(m)
        if len(traced) == 2:  # the first time is the search for mistakes
            raise KeyboardInterrupt
        return exact(square)(m)

    arguments = {**ARGUMENTS, "optimizer": optax.sgd(0.1), "checkpoint": tmp_path / "run"}
    result = sy.train(program, jnp.zeros(()), **arguments)
    assert result.interrupted and len(result.history) == 0 and result.models == 0.0
    again = sy.train(program, jnp.zeros(()), **arguments)
    assert not again.interrupted and len(again.history) == 40


def test_an_error_in_a_callback_comes_through_and_its_run_can_go_on(tmp_path: Path) -> None:
    def callback(result: sy.TrainResult) -> None:
        if len(result.history) == 30:
            raise ZeroDivisionError("my own")

    given = {"checkpoint": tmp_path / "run", "checkpoint_seconds": -1.0}
    with pytest.raises(ZeroDivisionError, match="my own"):
        run(callback, **given)
    resumed: list[int] = []
    result = run(lambda result: resumed.append(len(result.history)), **given)
    assert resumed == [40]
    assert identical(result, run(None))
