"""Data, minibatches and keys."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import steelyard as sy
from tests.training.programs import ARGUMENTS, exact, identical, network_run, square, unbroken

ROWS = np.asarray([1.0, 2.0, 3.0, 4.0], np.float32)


def still(program: Any, data: Any, **arguments: Any) -> np.ndarray:
    """Return the losses of a run in which nothing is learned: which data were drawn can be read off them."""
    result = sy.train(program, jnp.zeros(()), optimizer=optax.sgd(0.0), data=data, **{**ARGUMENTS, **arguments})
    return np.asarray(result.history.loss)


def test_all_data_in_every_step_without_a_batch_size() -> None:
    np.testing.assert_allclose(still(exact(square), ROWS), np.mean(ROWS**2), rtol=1e-5)


def test_minibatches_are_drawn_with_equal_probabilities() -> None:
    losses = still(exact(square), ROWS, batch_size=1, steps=2000)
    assert set(losses) == {1.0, 4.0, 9.0, 16.0}
    counts = [np.sum(losses == x**2) for x in ROWS]
    assert np.sum((np.asarray(counts) - 500) ** 2) / 500 < 16.3  # chi-squared, three degrees: one run in a thousand


def test_a_minibatch_may_be_larger_than_the_data() -> None:
    losses = still(exact(square), ROWS, batch_size=400)
    assert 0 < np.std(losses)
    assert abs(np.mean(losses) - np.mean(ROWS**2)) < 0.3


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_tuple_gives_one_argument_for_each_entry_row_by_row(batch_size: int | None) -> None:
    data = (ROWS, jnp.asarray(10 * ROWS), {"twice": np.stack([2 * ROWS, 2 * ROWS], axis=1)})

    def loss(m: Any, x: Any, y: Any, other: Any) -> Any:
        assert (x.shape, y.shape, other["twice"].shape) == ((), (), (2,))
        return m**2 + square(10 * x, y) + square(2 * x, other["twice"]) + x

    losses = still(exact(loss), data, batch_size=batch_size)
    assert 1.0 <= losses.min() and losses.max() <= 4.0


def test_a_dictionary_is_one_argument() -> None:
    data = {"x": ROWS, "y": 10 * ROWS}
    losses = still(exact(lambda m, datum: m**2 + square(10 * datum["x"], datum["y"])), data, batch_size=3)
    np.testing.assert_array_equal(losses, 0.0)


def test_data_that_are_whole_numbers_stay_so() -> None:
    table = jnp.asarray([5.0, 6.0, 7.0])
    losses = still(exact(lambda m, i: m**2 + table[i]), np.asarray([2, 2, 2]), batch_size=2)
    np.testing.assert_array_equal(losses, 7.0)


def test_the_same_key_gives_the_same_run_and_another_key_another() -> None:
    first, again, other = unbroken(), network_run(), network_run(key=jax.random.key(1))
    assert identical(first, again)
    assert not identical(first.models, other.models)
    assert not np.any(first.history.loss == other.history.loss)


def test_each_datum_each_particle_and_each_step_has_its_own_noise() -> None:
    def noise(m: Any, x: Any) -> Any:
        def guide(s: sy.State) -> None:
            s.sample("z", dist.Normal(0.0, 1.0))

        return sy.algorithms.svi(lambda s: s.factor("fit", m + s.sample("z", dist.Normal(0.0, 1.0))), guide)

    losses = still(noise, np.zeros(8), steps=200)
    assert len(set(losses.tolist())) == 200
    assert 0.8 < np.std(losses) * np.sqrt(8 * ARGUMENTS["particles"]) < 1.25


def test_an_objective_may_come_with_the_program_or_with_the_run() -> None:
    def bare(m: Any) -> Any:
        q = exact(square)(m)
        return sy.propose(q.p, q.q)

    arguments = {**ARGUMENTS, "optimizer": optax.adam(0.1), "particles": 4}
    with_run = sy.train(bare, jnp.zeros(()), objective=sy.objectives.elbo, **arguments)
    assert identical(with_run, sy.train(exact(square), jnp.zeros(()), **arguments))
