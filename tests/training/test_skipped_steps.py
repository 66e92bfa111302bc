"""Steps whose gradient is not finite: skipped, counted and shown, and nothing else is touched."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from tests.training.programs import ARGUMENTS, by_hand, exact, square, unlucky

ALONE: dict[str, Any] = {**ARGUMENTS, "particles": 1, "steps": 60}


def scaled(factor: float) -> Callable[[Any, Any], Any]:
    """The gradient of `where(flag, a, b)` is NaN wherever that of either is; so the flag comes in as a factor."""
    return lambda m, flag: jnp.where(flag, factor, 1.0) * square(m)


def steep(m: Any, flag: Any) -> Any:
    """A root whose derivative at zero is infinite."""
    return square(m) + jnp.sqrt(jnp.where(flag, 0.0, 1.0) + 0.0 * jnp.sum(m))


BAD: dict[str, Callable[[Any, Any], Any]] = {
    "NaN": scaled(jnp.nan),
    "infinite": scaled(jnp.inf),
    "a gradient whose norm is infinite": scaled(1e30),
    "the gradient alone": steep,
    "the loss alone": lambda m, flag: square(m) + jnp.where(flag, jnp.nan, 0.0),
}

OPTIMIZERS = {
    "adam": optax.adam(0.2),
    "momentum": optax.sgd(0.02, momentum=0.9),
    "schedule": optax.sgd(optax.linear_schedule(0.2, 0.0, 100)),
}


def check(result: sy.TrainResult, optimizer: optax.GradientTransformation) -> None:
    """Check that the steps that were made are those of a run in which the others did not occur."""
    skipped = int(np.sum(result.history.skipped))
    assert 3 <= skipped <= 25
    # After some skipped step another one was made.
    assert np.diff(result.history.skipped.astype(int)).min() == -1
    expected = by_hand(square, jnp.zeros(2), optimizer, ALONE["steps"] - skipped)
    np.testing.assert_allclose(result.models, expected, rtol=1e-5)
    assert not result.interrupted


@pytest.mark.parametrize("bad", BAD)
def test_whatever_is_not_finite_the_step_is_skipped(bad: str) -> None:
    program = unlucky(BAD[bad])
    check(sy.train(program, jnp.zeros(2), optimizer=OPTIMIZERS["adam"], **ALONE), OPTIMIZERS["adam"])


@pytest.mark.parametrize("name", ["momentum", "schedule"])
def test_the_state_of_the_optimizer_is_not_touched(name: str) -> None:
    program = unlucky(scaled(jnp.nan))
    check(sy.train(program, jnp.zeros(2), optimizer=OPTIMIZERS[name], **ALONE), OPTIMIZERS[name])


def test_one_parameter_without_a_finite_gradient_holds_back_all() -> None:
    def loss(m: Any) -> Any:
        return square(m["a"]) + jnp.sum(jnp.nan * m["b"])

    models = {"a": jnp.zeros(2), "b": jnp.ones(())}
    result = sy.train(exact(loss), models, optimizer=optax.adam(0.1), **ALONE)
    assert result.history.skipped.all()
    np.testing.assert_array_equal(result.models["a"], 0.0)
    np.testing.assert_array_equal(result.models["b"], 1.0)


@pytest.mark.parametrize("rate", [np.nan, np.inf, 1e38], ids=["NaN", "infinite", "too large"])
def test_an_optimizer_that_is_not_finite_does_not_spoil_the_parameters(rate: float) -> None:
    # The gradient is finite, and the update is not.
    result = sy.train(exact(square), jnp.full(2, 1e5), optimizer=optax.sgd(rate), **ALONE)
    np.testing.assert_array_equal(result.models, 1e5)
    assert result.history.skipped.all()


def test_a_parameter_that_is_infinite_from_the_start_does_not_hold_back_the_others() -> None:
    def loss(m: Any) -> Any:
        return square(m["a"]) + jnp.sum(jnp.exp(m["mask"]))

    models = {"a": jnp.zeros(2), "mask": jnp.full(2, -jnp.inf)}
    result = sy.train(exact(loss), models, optimizer=optax.adam(0.2), **ALONE)
    assert not result.history.skipped.any()
    np.testing.assert_array_equal(result.models["mask"], -np.inf)
    np.testing.assert_allclose(result.models["a"], 3.0, atol=0.5)


def test_a_bad_row_among_the_data_costs_the_steps_that_draw_it() -> None:
    data = np.asarray([3.0, 3.0, 3.0, np.nan], np.float32)
    arguments = {**ALONE, "data": data, "batch_size": 1, "optimizer": optax.adam(0.2)}
    result = sy.train(exact(square), jnp.zeros(2), **arguments)
    np.testing.assert_array_equal(result.history.skipped, np.isnan(result.history.loss))
    check(result, OPTIMIZERS["adam"])


def test_skipped_steps_are_shown_and_do_not_hide_the_averages(capsys: pytest.CaptureFixture[str]) -> None:
    program = unlucky(scaled(jnp.nan))
    result = sy.train(program, jnp.zeros(2), optimizer=OPTIMIZERS["adam"], **{**ALONE, "progress": True})
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{np.sum(result.history.skipped)} steps skipped" in last
    assert "nan" not in last


def test_a_run_without_a_single_step_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    loss = exact(lambda m: jnp.nan * square(m))
    sy.train(loss, jnp.zeros(2), optimizer=OPTIMIZERS["adam"], **{**ALONE, "progress": True})
    assert "loss not finite, log Z not finite" in capsys.readouterr().err.splitlines()[-1]
