"""Which data a step learns from: all of them, a draw with replacement, or the next ones of an epoch."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, Shaped, UInt32

from steelyard.errors import ArgumentError

# Folded into the key of a run in place of the number of a step, which is never as large.
EPOCHS = np.uint32(2**32 - 1)
# So many rounds for each bit of the number of data, as the authors of the shuffle recommend, and for few data more.
ROUNDS, FEWEST_BITS = 6, 4


def rows_of(data: Any) -> int | None:
    """Return how many data there are; None, if there are no data.

    Raises:
        ArgumentError: the arrays disagree on it, or there are none.
    """
    if data is None:
        return None
    sizes = {np.shape(x)[:1] for x in jax.tree.leaves(data)}
    if len(sizes) != 1 or sizes == {()}:
        raise ArgumentError(
            f"train: the arrays of data must have one first axis, the datum; their shapes are "
            f"{[np.shape(x) for x in jax.tree.leaves(data)]}."
        )
    return sizes.pop()[0]


def minibatch(
    data: Any,
    batch_size: int | None,
    key: PRNGKeyArray,
    step: Int[Array, ""],
    *,
    replacement: bool,
    share_of: Callable[[Any], Any] = lambda x: x,
) -> tuple[tuple[Any, ...], int]:
    """Return the data of a step, one tuple entry for each argument of the program, and how many they are.

    They depend on the key of the run and on the number of the step alone, so that a run can go on anywhere. On one of
    many devices, `share_of` are those that belong there.
    """
    datum, rows = data if isinstance(data, tuple) else (data,), rows_of(data) or 0
    if batch_size is None:
        return datum, rows
    if replacement:
        of_step = jax.random.fold_in(jax.random.fold_in(key, step), 0)
        chosen = jax.random.randint(of_step, (batch_size,), 0, rows)
    else:
        check_epochs(rows, batch_size)
        chosen = in_epochs(jax.random.fold_in(key, EPOCHS), step, rows, batch_size)
    return jax.tree.map(lambda x: x[share_of(chosen)], datum), batch_size


def check_epochs(rows: int, batch_size: int) -> None:
    """Raise `ArgumentError` unless minibatches of this size can go through so many data."""
    if batch_size > rows:
        raise ArgumentError(
            f"train: batch_size={batch_size} is more than the {rows} data, and without replacement a minibatch has "
            f"each datum once. Choose a smaller one, or batch_size=None for all data in every step."
        )
    common = math.gcd(rows, batch_size)
    if (rows // common) * (batch_size // common) >= 2**32:
        raise ArgumentError(
            f"train: epochs of {rows} data in minibatches of {batch_size} are too long to count with 32 bits. Choose "
            f"a batch size that divides the number of data, or leave {rows % batch_size} of them out."
        )


def in_epochs(key: PRNGKeyArray, step: Int[Array, ""], rows: int, size: int) -> UInt32[Array, " size"]:
    """Return the data of a step, where each epoch has every datum once, in a fresh random order.

    An epoch that ends within a minibatch is followed by the next one there: nothing is left out.
    """
    # After so many steps an epoch ends with a step. Counted within them, no number is too large.
    common = math.gcd(rows, size)
    period, jump = rows // common, size // common
    number = step.astype(jnp.uint32)
    done = (number % period) * jnp.uint32(jump)
    epoch = (number // period) * jnp.uint32(jump) + done // period
    places = (done % period) * jnp.uint32(common) + jnp.arange(size, dtype=jnp.uint32)
    next_one = places >= rows
    keys = jax.vmap(lambda e: jax.random.fold_in(key, e))(epoch + next_one)
    return shuffled(keys, jnp.where(next_one, places - rows, places), rows)


def shuffled(keys: Shaped[PRNGKeyArray, " size"], places: UInt32[Array, " size"], rows: int) -> UInt32[Array, " size"]:
    """Return which of so many rows is at each place of the random order that belongs to its key.

    Each round exchanges x and c - x, modulo the number of rows, if a coin that both share says so: whatever the coins,
    no two rows come to one place. It costs as much as there are places, times the logarithm of the number of rows; to
    sort all of them in every step would take longer than most steps.

    References:
        Hoang, Morris and Rogaway (2012), An enciphering scheme based on a card shuffle.
    """

    def one(key: PRNGKeyArray, x: Array) -> Array:
        def exchange(number: Any, x: Array) -> Array:
            of_round = jax.random.fold_in(key, number)
            c = jax.random.randint(of_round, (), 0, rows).astype(jnp.uint32)
            other = jnp.where(x <= c, c - x, c + (jnp.uint32(rows) - x))
            coin = jax.random.bits(jax.random.fold_in(of_round, jnp.maximum(x, other)), dtype=jnp.uint32)
            return jnp.where(coin & 1 == 0, other, x)

        bits = max((rows - 1).bit_length(), FEWEST_BITS)
        return jax.lax.fori_loop(0, ROUNDS * bits, exchange, x)

    return jax.vmap(one)(keys, places)
