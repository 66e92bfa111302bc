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
from steelyard.training.step import steps_of
from tests.training.programs import ARGUMENTS, exact, identical, network_run, square, unbroken, unlucky
from tests.training.test_skipped_steps import BAD

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


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let steps with few parameters be made in place too, and note how many were asked for at once."""
    asked: list[int] = []
    before = runs._in_place

    def noted(*args: Any) -> runs.Run:
        run = before(*args)
        return lambda learner, data, count: asked.append(count) or run(learner, data, count)

    monkeypatch.setattr(runs, "MANY", 1)
    monkeypatch.setattr(runs, "_in_place", noted)
    return asked


def agree(result: sy.TrainResult, expected: sy.TrainResult) -> None:
    """Check that two runs differ by rounding at most, and that they skipped the same steps."""
    np.testing.assert_array_equal(result.history.skipped, expected.history.skipped)
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_steps_in_place_are_those_of_a_loop_in_any_chunks(in_place: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise, minibatches and an optimiser with a state and a schedule."""
    result = network_run()
    assert sum(in_place) == 60
    agree(result, unbroken())
    monkeypatch.setattr(module, "MOST_STEPS_AT_ONCE", 7)
    assert identical(network_run(), result)


@pytest.mark.parametrize("bad", BAD)
def test_in_place_a_gradient_that_is_not_finite_changes_nothing(
    bad: str, in_place: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {**ARGUMENTS, "optimizer": optax.adam(0.2), "particles": 1}
    result = sy.train(unlucky(BAD[bad]), jnp.zeros(2), **arguments)
    assert in_place
    monkeypatch.setattr(runs, "MANY", 2**20)
    agree(result, sy.train(unlucky(BAD[bad]), jnp.zeros(2), **arguments))
    assert 3 <= result.history.skipped.sum() <= 25

    step = jax.jit(steps_of(unlucky(BAD[bad]), jnp.zeros(2), optax.adam(0.2), 1, None, None).in_place)
    learner = sy.Learner(jnp.array([0.3, -0.7]), optax.adam(0.2).init(jnp.ones(2)), jnp.zeros((), jnp.int32))
    for number, skipped in enumerate(result.history.skipped):
        after, now, spoiled = step(learner, ARGUMENTS["key"], None)
        assert identical(after[:2], learner[:2]) == bool(now.skipped) == skipped and not spoiled
        assert after.step == number + 1
        learner = after


def marked(models: Any, mark: Any) -> Any:
    """A loss whose gradient tells the optimizer which datum is drawn."""
    return square(models["a"]) + models["mark"] * mark


def spoiling() -> optax.GradientTransformation:
    """Return momentum whose update, not whose gradient, is infinite where the datum is marked."""
    momentum = optax.trace(0.9)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        new: Any
        new, state = momentum.update(updates, state, params)
        return {"a": jnp.where(updates["mark"] > 0.5, jnp.inf, -0.01 * new["a"]), "mark": jnp.zeros(())}, state

    return optax.GradientTransformation(momentum.init, update)


MARKED = {"a": jnp.array([0.3, -0.7]), "mark": jnp.zeros(())}


@pytest.mark.parametrize("rows", [1, 5, 30], ids=["always", "often", "seldom"])
def test_in_place_an_update_that_is_not_finite_changes_nothing(
    rows: int, in_place: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = np.asarray([1.0] + [0.0] * (rows - 1), np.float32)
    arguments = {**ARGUMENTS, "optimizer": spoiling(), "data": data, "batch_size": 1}
    seen: list[sy.TrainResult] = []
    result = sy.train(exact(marked), MARKED, **arguments, callback=seen.append)
    # Nothing is done again but the steps before a spoiled one.
    assert len(in_place) == len(seen) <= 6 + result.history.skipped.sum()
    monkeypatch.setattr(runs, "MANY", 2**20)
    agree(result, sy.train(exact(marked), MARKED, **arguments))
    assert result.history.skipped.any() and result.history.skipped.all() == (rows == 1)
    assert all(np.isfinite(one.models["a"]).all() for one in seen)


def test_a_spoiled_step_leaves_the_bits_of_the_step_before() -> None:
    steps = steps_of(exact(marked), MARKED, spoiling(), 2, None, 1)
    run = runs._in_place(steps.in_place, ARGUMENTS["key"], (40, 5))
    data, start = jnp.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), steps.trainer.init()
    learned, rows = run(start, data, 40)
    made = len(rows)
    assert 2 < made < 40 and rows[:, -1].tolist() == [0.0] * (made - 1) + [1.0]
    before, _ = run(start, data, made - 1)
    assert identical(learned[:2], before[:2]) and learned.step == before.step + 1 == made


def test_parameters_that_are_infinite_from_the_start_are_not_trained_in_place(in_place: list[int]) -> None:
    result = sy.train(
        exact(lambda m: square(m["a"]) + jnp.sum(jnp.exp(m["mask"]))),
        {"a": jnp.zeros(2), "mask": jnp.full(2, -jnp.inf)},
        **{**ARGUMENTS, "optimizer": optax.adam(0.2)},
    )
    assert not in_place and not result.history.skipped.any()


def test_steps_in_place_need_no_second_copy_of_what_was_learned() -> None:
    """Adam keeps two numbers for each parameter; a choice between new and old ones would need three more."""
    models = jnp.zeros(2**20)
    steps = steps_of(exact(square), models, optax.adam(0.1), 1, None, None)
    taken = []
    for step in (steps.trainer.step, steps.in_place):

        def run(learner: Any, step: Any = step) -> Any:
            return jax.lax.fori_loop(0, 3, lambda _, x: step(x, jax.random.key(0), None)[0], learner)

        memory: Any = jax.jit(run).lower(steps.trainer.init()).compile().memory_analysis()
        taken.append(memory.temp_size_in_bytes / models.nbytes)
    assert taken[1] <= taken[0] - 0.9


def test_a_run_in_place_goes_on_from_a_checkpoint(tmp_path: Path, in_place: list[int]) -> None:
    given = {"checkpoint": tmp_path / "run", "callback": lambda result: len(result.history) == 16}
    assert network_run(**given).interrupted
    assert identical(network_run(checkpoint=tmp_path / "run"), network_run())


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
