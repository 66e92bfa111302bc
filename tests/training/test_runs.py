"""Steps in a loop or in single calls: which of them, and that nobody sees a difference."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from steelyard.training import runs
from steelyard.training import train as module
from tests.training.programs import ARGUMENTS, exact, identical, network_run

IMAGES = jax.random.normal(jax.random.key(5), (6, 7, 7, 1))


def blurred(kernel: Any, images: Any) -> Any:
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def loss(models: Any) -> Any:
    hidden = jnp.tanh(blurred(models["kernel"], IMAGES))
    return jnp.mean((blurred(models["back"], hidden) - IMAGES) ** 2)


def models() -> dict[str, Any]:
    return {"kernel": jnp.full((3, 3, 1, 2), 0.1), "back": jnp.full((3, 3, 2, 1), 0.2)}


def convolutional_run(**arguments: Any) -> sy.TrainResult:
    given = {**ARGUMENTS, "optimizer": optax.adam(0.01), **arguments}
    return sy.train(exact(loss), models(), **given)


def in_a_loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, x: blurred(jnp.ones((3, 3, 1, 1)), x), x)


CASES = {
    "none": (lambda x: jnp.tanh(x) @ x.mT, False),
    "plain": (lambda x: blurred(jnp.ones((3, 3, 1, 1)), x), True),
    "in a function": (jax.jit(lambda x: blurred(jnp.ones((3, 3, 1, 1)), x)), True),
    "in a branch": (
        lambda x: jax.lax.cond(x.sum() > 0, lambda x: blurred(jnp.ones((3, 3, 1, 1)), x), jnp.sin, x),
        True,
    ),
    "recomputed": (jax.checkpoint(lambda x: blurred(jnp.ones((3, 3, 1, 1)), x)), True),
    "for each datum": (jax.vmap(lambda x: blurred(jnp.ones((3, 3, 1, 1)), x[None])), True),
    "in a loop of its own": (in_a_loop, False),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_are_found(name: str) -> None:
    function, expected = CASES[name]
    assert runs.has_convolution(jax.make_jaxpr(function)(IMAGES)) is expected


def test_steps_with_convolutions_run_in_single_calls_and_others_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []
    for way in ("_in_a_loop", "_in_single_calls"):
        before = getattr(runs, way)
        monkeypatch.setattr(runs, way, lambda *args, way=way, before=before: ways.append(way) or before(*args))
    convolutional_run(steps=2)
    network_run(steps=2)
    assert ways == ["_in_single_calls", "_in_a_loop"]


def test_single_calls_are_compiled_once_and_give_what_a_loop_of_ones_own_gives() -> None:
    traced: list[Any] = []

    def program(m: Any) -> Any:
        traced.append(m)
        return exact(loss)(m)

    result = sy.train(program, models(), **{**ARGUMENTS, "optimizer": optax.adam(0.01)})
    assert len(traced) == 2  # to find mistakes at once, and to compile
    trainer = sy.trainer(exact(loss), models(), optimizer=optax.adam(0.01), particles=ARGUMENTS["particles"])
    learner, step = trainer.init(), jax.jit(trainer.step)
    for number in range(ARGUMENTS["steps"]):
        learner, now = step(learner, ARGUMENTS["key"])
        np.testing.assert_allclose(result.history.loss[number], now.loss, rtol=1e-5)
        np.testing.assert_allclose(result.history.gradient_norm[number], now.gradient_norm, rtol=1e-4)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), result.models, trainer.models(learner))
    assert result.history.loss[-1] < 0.5 * result.history.loss[0]


def test_single_calls_give_the_same_bits_in_any_chunks_and_after_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = convolutional_run()
    monkeypatch.setattr(module, "MOST_STEPS_AT_ONCE", 7)
    monkeypatch.setattr(module, "SECONDS_AT_ONCE", 1e9)
    seen: list[sy.TrainResult] = []

    def callback(result: sy.TrainResult) -> bool:
        seen.append(result)
        return len(result.history) == 21

    given = {"checkpoint": tmp_path / "run", "callback": callback}
    broken = convolutional_run(**given)
    assert broken.interrupted and len(broken.history) == 21
    result = convolutional_run(**given)
    assert identical(result, expected)
    assert [len(one.history) for one in seen] == [7, 14, 21, 28, 35, 40]
    # What a callback has seen is not taken away from it.
    values = [float(jnp.sum(one.models["kernel"])) for one in seen]
    assert len(set(values)) == 6


def test_single_calls_leave_alone_what_they_are_given_and_what_was_learned_before_ctrl_c() -> None:
    calls: list[int] = []

    def step(learner: sy.Learner, key: Any, data: Any) -> tuple[sy.Learner, Any]:
        jax.debug.callback(lambda number: calls.append(int(number)), learner.step)
        return learner._replace(parameters=learner.parameters + data, step=learner.step + 1), (
            learner.step,
            learner.step,
        )

    run = runs._in_single_calls(step, jax.random.key(0))
    start = sy.Learner(jnp.zeros(3), (), jnp.zeros((), jnp.int32))
    learned, rows = run(start, 2.0, 4)
    jax.effects_barrier()
    assert calls == [0, 1, 2, 3]
    np.testing.assert_array_equal(rows, [[i, i] for i in range(4)])
    np.testing.assert_array_equal(learned.parameters, 8.0)
    again, _ = run(learned, 1.0, 1)
    np.testing.assert_array_equal(start.parameters, 0.0)
    np.testing.assert_array_equal(learned.parameters, 8.0)
    np.testing.assert_array_equal(again.parameters, 9.0)


def test_steps_that_are_not_finite_are_skipped_in_single_calls_too() -> None:
    data = np.asarray([1.0, 1.0, 1.0, np.nan], np.float32)
    result = sy.train(
        exact(lambda m, x: loss(m) * x),
        models(),
        **{**ARGUMENTS, "optimizer": optax.adam(0.01), "data": data, "batch_size": 1},
    )
    assert 3 <= result.history.skipped.sum() <= 25
    np.testing.assert_array_equal(result.history.skipped, np.isnan(result.history.loss))
    made = ARGUMENTS["steps"] - int(result.history.skipped.sum())
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), result.models, convolutional_run(steps=made).models
    )
