"""Particles that change places between devices.

A device sends each particle that another one needs once, however many copies are made of it there. Sizes of messages
must be known before anything runs, and how many particles go from one device to another is not. Messages therefore have
a fixed size, and as many are sent as it takes: to the device at distance one, then at distance two, and so on. Where
nobody needs anything from that distance, nothing is sent.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh

from steelyard.ancestors import take
from steelyard.devices.layout import AXIS, SPLIT, WHOLE, apart_on_devices
from steelyard.devices.ring import Ring

# A message has a part of the particles of a device, but at least so many.
PARTS, LEAST = 32, 256


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Plan:
    """Who sends what to whom.

    Devices that are at a distance send each other two ranges of their survivors: one for slots up to the last, and one
    for slots from the first on.

    Attributes:
        order: the particles of each device that survive, in order and without the others.
        links: for each device, distance and range: where in that order begins what it sends, how many messages that
            are, where it puts what it gets, and how many particles it gets.
        rounds: for each distance, how many messages it takes: as many as the pair that needs most.
        held: for each particle, which of those that its device gets it is a copy of.
        message: how many particles a message has.
        mesh: the devices. Gradients are computed later, when it is no longer known where particles are.
    """

    order: Any
    links: Any
    rounds: Any
    held: Any
    message: int = field(metadata={"static": True})
    mesh: AbstractMesh = field(metadata={"static": True})


# How the parts of a plan lie on the devices.
SPECS = (SPLIT, SPLIT, WHOLE, SPLIT)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Within:
    """Ancestors that are on the same device, numbered there; on these devices."""

    here: Any
    mesh: AbstractMesh = field(metadata={"static": True})


def message_size(particles: int) -> int:
    """Return how many particles a message has, where a device has so many."""
    return min(particles, max(LEAST, -(-particles // PARTS)))


def move(plan: Plan | Within | Ring, x: Any) -> Any:
    """Return the array in which each particle holds what its ancestor held."""
    if isinstance(plan, Within):
        return apart_on_devices(lambda here, x: take(x, here), SPLIT, SPLIT, plan.mesh)(plan.here, x)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        words = move(plan, jax.random.key_data(x))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(x))
    if isinstance(plan, Ring):
        return plan.take(x)
    return _move(plan.message, plan.mesh, (plan.order, plan.links, plan.rounds, plan.held), x)


def _move(message: int, mesh: AbstractMesh, plan: Any, x: Any) -> Any:
    def there(plan: Any, x: Any) -> Any:
        order, links, rounds, held = plan
        return take(received(take(x, order), links, rounds, message), held)

    def back(plan: Any, gradient: Any) -> Any:
        order, links, rounds, held = plan
        return _returned(order, links, rounds, held, gradient, message)

    def on_each(local: Any) -> Any:
        return partial(apart_on_devices(local, (SPECS, SPLIT), SPLIT, mesh), plan)

    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return on_each(there)(x)
    # JAX cannot go back through a loop of unknown length. Its way to give a linear map the map back, for derivatives of
    # any kind and order and under `vmap`, has the form of an equation to solve: here y = x, by moving.
    return jax.lax.custom_linear_solve(
        lambda y: y, x, lambda _, x: on_each(there)(x), lambda _, gradient: on_each(back)(gradient)
    )


def linked(starts: Any, sent: Any, got: Any, message: int) -> tuple[Any, Any]:
    """Return, on a device, the links and rounds of a plan.

    Args:
        starts: for each receiver and range, where begins what this device sends.
        sent: for each receiver and range, how many that are.
        got: for each sender and range, how many come to this device.
        message: how many particles a message has.
    """
    devices, device = sent.shape[0], jax.lax.axis_index(AXIS)
    distance = jnp.arange(devices)
    # First what belongs to the slots up to the last, by sender; then the other ranges.
    place = (jnp.cumsum(got.T.ravel()) - got.T.ravel()).reshape(2, devices).T
    to, by = (device - distance) % devices, (device + distance) % devices
    messages = -(-sent // message)
    links = jnp.stack([starts[to], messages[to], place[by], got[by]], axis=-1)
    rounds = jax.lax.pmax(messages.sum(axis=-1)[to], AXIS)
    return links[None].astype(jnp.int32), rounds.astype(jnp.int32)


def received(survivors: Any, links: Any, rounds: Any, message: int) -> Any:
    """Return, on a device, what it gets of the survivors of all devices, its own included."""
    packed = _padded(survivors, message)

    def one(distance: int, begin: Any, place: Any, left: Any, room: Any) -> Any:
        part = _sent(jax.lax.dynamic_slice_in_dim(packed, begin, message), rounds, -distance)
        old = jax.lax.dynamic_slice_in_dim(room, place, message)
        return jax.lax.dynamic_update_slice_in_dim(room, _where(left, part, old), place, 0)

    return _in_rounds(one, links, rounds, message, jnp.zeros_like(packed))


def _returned(order: Any, links: Any, rounds: Any, held: Any, gradient: Any, message: int) -> Any:
    """Return, on a device, the sum of the gradients of all copies of each of its particles."""
    room = _padded(jnp.zeros_like(gradient), message).at[held].add(gradient)

    def one(distance: int, begin: Any, place: Any, left: Any, packed: Any) -> Any:
        part = _where(left, jax.lax.dynamic_slice_in_dim(room, place, message), jnp.zeros_like(room[:message]))
        old = jax.lax.dynamic_slice_in_dim(packed, begin, message)
        return jax.lax.dynamic_update_slice_in_dim(packed, old + _sent(part, rounds, distance), begin, 0)

    packed = _in_rounds(one, links, rounds, message, jnp.zeros_like(room))
    return jnp.zeros_like(gradient).at[order].add(packed[: gradient.shape[0]])


def _sent(part: Any, rounds: Any, distance: int) -> Any:
    """Return what the device at a distance before this one sends."""
    devices = rounds.shape[0]
    pairs = [(d, (d + distance) % devices) for d in range(devices)]
    return part if distance == 0 else jax.lax.ppermute(part, AXIS, pairs)


def _in_rounds(one: Any, links: Any, rounds: Any, message: int, start: Any) -> Any:
    """Go through all messages: first those that devices send themselves, then those to the next one, and so on."""

    def step(distance: int, number: Any, carry: Any) -> Any:
        begins, messages, places, counts = links[0, distance].T

        def of_range(first: Any, column: Any) -> tuple[Any, Any]:
            second = (number >= first).astype(jnp.int32)
            return column[second], (number - second * first) * message

        begin, sent = of_range(messages[0], begins)
        first = -(-counts[0] // message)
        (place, done), (count, _) = of_range(first, places), of_range(first, counts)
        return one(distance, begin + sent, place + done, count - done, carry)

    for distance in range(rounds.shape[0]):
        start = jax.lax.fori_loop(0, rounds[distance], partial(step, distance), start)
    return start


def _padded(x: Any, message: int) -> Any:
    return jnp.pad(x, [(0, message)] + [(0, 0)] * (x.ndim - 1))


def _where(count: Any, new: Any, old: Any) -> Any:
    """Return the first so many rows of one array, and the others of another."""
    return jnp.where((jnp.arange(new.shape[0]) < count).reshape(-1, *(1,) * (new.ndim - 1)), new, old)
