"""Steps: the optimiser's own, whatever the chunks they are made in."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from steelyard.training import runs
from steelyard.training import train as module
from tests.training.programs import ARGUMENTS, by_hand, exact, identical, network_run, square, unbroken

OPTIMIZERS = {
    "sgd with momentum": optax.sgd(0.05, momentum=0.9),
    "a schedule": optax.adam(optax.cosine_decay_schedule(0.3, 30)),
    "clipping, decay and warmup": optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.2, 10, 40))
    ),
    "every fourth step": optax.MultiSteps(optax.adam(0.2), 4).gradient_transformation(),
    "hyperparameters in the state": optax.inject_hyperparams(optax.adam)(optax.linear_schedule(0.3, 0.0, 40)),
    "one rate for each part": optax.partition({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, {"a": "a", "b": "b"}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_a_loop_by_hand(name: str) -> None:
    def loss(m: Any) -> Any:
        return square(m["a"]) + jnp.sum(jnp.cosh(m["b"] - 1.0))

    models, optimizer = {"a": jnp.zeros(()), "b": jnp.zeros(2)}, OPTIMIZERS[name]
    result = sy.train(exact(loss), models, optimizer=optimizer, **ARGUMENTS)
    expected = by_hand(loss, models, optimizer, ARGUMENTS["steps"])
    np.testing.assert_allclose(result.models["a"], expected["a"], rtol=1e-4)
    np.testing.assert_allclose(result.models["b"], expected["b"], rtol=1e-4)
    assert not result.interrupted


def test_the_history_has_an_entry_for_each_step() -> None:
    result = sy.train(exact(square), jnp.zeros(4), optimizer=optax.sgd(0.1), **ARGUMENTS)
    m = 3.0 * (1.0 - 0.8 ** np.arange(40))
    np.testing.assert_allclose(result.history.loss, 4 * (m - 3.0) ** 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.history.log_z, -result.history.loss, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.history.ess, 3.0, rtol=1e-4)
    np.testing.assert_allclose(result.history.gradient_norm, 2 * 2 * (3.0 - m), rtol=1e-4, atol=1e-5)
    assert not result.history.skipped.any()
    assert len(result.history) == 40


@pytest.mark.parametrize(("constant", "value"), [("MOST_STEPS_AT_ONCE", 7), ("SECONDS_AT_ONCE", 0.0)])
def test_the_result_does_not_depend_on_the_chunks(constant: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[int] = []
    monkeypatch.setattr(module, constant, value)
    result = network_run(callback=lambda result: chunks.append(len(result.history)))
    assert len(chunks) > 8
    assert chunks == sorted(set(chunks)) and chunks[-1] == 60
    assert identical(result, unbroken())


@pytest.mark.parametrize("optimizer", [optax.adam(0.1), optax.inject_hyperparams(optax.sgd)(0.1)], ids=["adam", "sgd"])
@pytest.mark.parametrize("zero", [0.0, jnp.zeros(()), jnp.asarray(0.0)], ids=["a number", "an array", "a weak one"])
def test_a_run_is_compiled_once(
    zero: Any, optimizer: optax.GradientTransformation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_STEPS_AT_ONCE", 10)
    traced: list[Any] = []

    def program(m: Any) -> Any:
        traced.append(m)
        return exact(square)(m)

    sy.train(program, zero, optimizer=optimizer, **ARGUMENTS)
    assert len(traced) == 2  # to find mistakes at once, and to compile


@pytest.mark.parametrize("in_place", [False, True])
def test_the_learning_rate_is_in_the_history(in_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that each step was made with; not an average of a parameter that has this name."""
    if in_place:
        monkeypatch.setattr(runs, "MANY", 0)
    schedule = optax.linear_schedule(0.1, 0.0, 20)
    told = optax.chain(optax.clip(1.0), optax.inject_hyperparams(optax.adam)(learning_rate=schedule))
    models = {"learning_rate": jnp.zeros(()), "hyperparams": {"learning_rate": jnp.ones(())}}

    def loss(m: Any) -> Any:
        return square(m["learning_rate"]) + square(m["hyperparams"]["learning_rate"])

    given = {**ARGUMENTS, "steps": 10}
    result = sy.train(exact(loss), models, optimizer=told, **given)
    assert result.history.learning_rate is not None
    np.testing.assert_allclose(result.history.learning_rate, [schedule(i) for i in range(10)], rtol=1e-5)
    if not in_place:
        sy.train(exact(loss), models, optimizer=told, checkpoint=tmp_path, **{**given, "steps": 4})
        again = sy.train(exact(loss), models, optimizer=told, checkpoint=tmp_path, **given)
        assert identical(again, result)
        assert sy.train(exact(loss), models, optimizer=optax.adam(0.1), **given).history.learning_rate is None
        assert [ax.get_ylabel() for ax in sy.plot.history(result)][-1] == "learning rate"
