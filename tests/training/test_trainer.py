"""The step as a pure function: the same as in `train`, in loops of one's own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from tests.training.programs import ARGUMENTS, INPUTS, dense, exact, posterior, square, unbroken, unlucky, weights


def test_a_loop_of_ones_own_gives_what_train_gives() -> None:
    """Noise, minibatches, a schedule: the same randomness for the same key."""
    trainer = sy.trainer(
        lambda w, x: posterior(lambda x: dense(w, x), x),
        weights(),
        optimizer=optax.adam(optax.cosine_decay_schedule(0.03, 150)),
        particles=5,
        batch_size=8,
    )
    learner, step, losses = trainer.init(), jax.jit(trainer.step), []
    for _ in range(60):
        learner, now = step(learner, ARGUMENTS["key"], jnp.asarray(INPUTS))
        losses.append(float(now.loss))
    expected = unbroken()
    np.testing.assert_allclose(losses, expected.history.loss, rtol=1e-4)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5), trainer.models(learner), expected.models
    )
    assert int(learner.step) == 60


def test_a_step_that_is_not_finite_changes_its_number_only() -> None:
    def loss(m: Any, flag: Any) -> Any:
        return jnp.where(flag, jnp.nan, square(m))

    trainer = sy.trainer(unlucky(loss), jnp.zeros(2), optimizer=optax.adam(0.1), particles=1)
    learner, step, seen = trainer.init(), jax.jit(trainer.step), set()
    for number in range(40):
        after, now = step(learner, jax.random.key(0))
        same = jax.tree.map(np.array_equal, learner[:2], after[:2])
        assert all(jax.tree.leaves(same)) == bool(now.skipped)
        assert int(after.step) == number + 1
        seen.add(bool(now.skipped))
        learner = after
    assert seen == {True, False}


def test_seeds_side_by_side() -> None:
    """Under `vmap` each seed learns as if it were alone, from models that differ."""

    def learned(start: Any, key: Any) -> Any:
        trainer = sy.trainer(exact(square), start, optimizer=optax.sgd(0.1), particles=2)
        return jax.lax.fori_loop(0, 5, lambda _, l: trainer.step(l, key)[0], trainer.init()).parameters

    starts, keys = jnp.array([0.0, 1.0, 7.0]), jax.random.split(jax.random.key(0), 3)
    np.testing.assert_allclose(jax.vmap(learned)(starts, keys), 3 + (starts - 3) * 0.8**5, rtol=1e-5)


@pytest.mark.parametrize("wrong", [{"particles": 0}, {"batch_size": 1.5}, {"objective": "elbo"}], ids=str)
@pytest.mark.usefixtures("as_users_run_it")
def test_arguments_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(sy.ArgumentError, match="trainer"):
        sy.trainer(exact(square), 0.0, **{"optimizer": optax.sgd(0.1), "particles": 2, **wrong})
