"""Minibatches without replacement: every epoch has every datum once, in an order of its own."""

from itertools import permutations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import steelyard as sy
from steelyard.training.minibatches import check_epochs, in_epochs, shuffled
from tests.training.programs import ARGUMENTS, exact, identical

KEY = jax.random.key(5)


def drawn(rows: int, size: int, steps: Any) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(lambda step: in_epochs(KEY, step, rows, size)))(jnp.asarray(steps, jnp.int32)))


# Sizes that divide the number of data, that do not, that have a common divisor, and all of it.
@pytest.mark.parametrize(("rows", "size"), [(12, 4), (7, 3), (12, 8), (5, 5), (1, 1), (6, 1)])
def test_every_epoch_has_every_datum_once(rows: int, size: int) -> None:
    epochs = 2 * size
    stream = drawn(rows, size, np.arange(epochs * rows // size)).reshape(epochs, rows)
    np.testing.assert_array_equal(np.sort(stream, axis=1), np.broadcast_to(np.arange(rows), (epochs, rows)))
    if rows > 5 and epochs > 2:
        assert len({tuple(order) for order in stream}) > 1


def test_long_runs_do_not_lose_count() -> None:
    """The number of data seen so far does not fit into 32 bits here, nor its product with anything."""
    rows, size, step = 48_611, 64, 2**31 - 50
    seen = int(step) * size
    first = drawn(rows, size, [step])[0]
    place = shuffled(
        jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.full(size, (seen // rows) % 2**32, jnp.uint32)),
        jnp.arange(seen % rows, seen % rows + size, dtype=jnp.uint32),
        rows,
    )
    np.testing.assert_array_equal(first, place)
    assert len(set(first)) == size


def test_orders_are_equally_probable() -> None:
    """Three data have six orders; four data, at any place, are equally frequent, and so is each pair of neighbours."""
    many = jax.random.split(KEY, 6000)

    def order(rows: int) -> np.ndarray:
        places = jnp.arange(rows, dtype=jnp.uint32)
        whole = jax.vmap(lambda key: shuffled(jnp.broadcast_to(key, (rows,)), places, rows))
        return np.asarray(jax.jit(whole)(many))

    orders = list(permutations(range(3)))
    counts = np.array([np.sum((order(3) == one).all(axis=1)) for one in orders])
    assert counts.sum() == 6000
    assert np.sum((counts - 1000) ** 2) / 1000 < 20.5  # chi-squared, five degrees: one run in a thousand
    found = order(5)
    pairs = np.zeros((5, 5))
    np.add.at(pairs, (found[:, 1], found[:, 4]), 1)
    expected = 6000 / 20 * (1 - np.eye(5))
    assert (np.diag(pairs) == 0).all()
    off = expected > 0
    assert np.sum((pairs[off] - expected[off]) ** 2 / expected[off]) < 43.8  # nineteen degrees: one in a thousand


def test_training_goes_through_the_data(tmp_path: Path) -> None:
    """Which data a step had is read off its loss; a run that goes on has the same ones."""
    data = 2.0 ** np.arange(6, dtype=np.float32)
    given = {**ARGUMENTS, "optimizer": optax.adam(0.1), "data": data, "batch_size": 2, "steps": 9}

    def run(**arguments: Any) -> sy.TrainResult:
        program = exact(lambda m, x: m - jax.lax.stop_gradient(m) + x)
        return sy.train(program, jnp.zeros(()), **{**given, "replacement": False, **arguments})

    whole = run()
    losses = np.asarray(whole.history.loss) * 2
    np.testing.assert_array_equal(losses.reshape(3, 3).sum(axis=1), data.sum())
    assert all(bin(int(x)).count("1") == 2 for x in losses)
    run(steps=4, checkpoint=tmp_path)
    assert identical(run(checkpoint=tmp_path), whole)
    with pytest.raises(sy.CheckpointError, match="batch_size was 2 without replacement, now 2"):
        run(checkpoint=tmp_path, replacement=True)


def test_what_makes_no_sense_is_refused() -> None:
    def run(**arguments: Any) -> None:
        given = {**ARGUMENTS, "optimizer": optax.sgd(0.1), "replacement": False, **arguments}
        sy.train(exact(lambda m, x: m + x), 0.0, **given)

    with pytest.raises(sy.ArgumentError, match="needs data and a batch_size"):
        run(data=jnp.zeros(3))
    with pytest.raises(sy.ArgumentError, match="batch_size=4 is more than the 3 data"):
        run(data=jnp.zeros(3), batch_size=4)
    with pytest.raises(sy.ArgumentError, match="too long to count"):
        check_epochs(2**28 + 1, 64)
    check_epochs(2**30, 64)
