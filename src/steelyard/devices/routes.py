"""Ancestors of particles on many devices, where slots are in order: systematic and stratified resampling.

The weights of all particles lie end to end, and each owns the slots that begin in its piece. Each device knows its own
pieces once it knows the sum of the weights before it. From them follows which of its particles each device needs.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from steelyard.ancestors import Rearrangement, take
from steelyard.arrays.wide import Wide, add, prefix_sums
from steelyard.devices.exchange import SPECS, Plan, Within, linked, message_size, move, received
from steelyard.devices.layout import AXIS, SPLIT, WHOLE, apart_on_devices, devices, laid_out
from steelyard.devices.ring import Ring, along_ring


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Routes(Rearrangement):
    """Where each particle is from, as a way through the devices, or several one after the other.

    Attributes:
        plans: the ways.
        indices: for each particle the index of its ancestor.
        distinct: how many ancestors there are; of several ways one after the other, at most.
    """

    plans: tuple[Plan | Within | Ring, ...]
    indices: Any
    distinct: Any

    def take(self, x: Any) -> Any:
        for plan in self.plans:
            x = move(plan, jnp.asarray(x))
        return x

    def if_so(self, flag: Any) -> "Routes":
        """Return these routes within devices where the flag holds; elsewhere every particle stays where it is."""
        (within,), size = self.plans, self.indices.shape[0]
        if not isinstance(within, Within):
            return self
        stays = laid_out(jnp.arange(size), size)
        here = jnp.where(flag, within.here, stays % (size // devices(size)))
        indices = jnp.where(flag, self.indices, stays)
        return Routes((Within(here, within.mesh),), indices, jnp.where(flag, self.distinct, size))

    def then(self, after: Any) -> Any:
        if not isinstance(after, Routes):
            return self.indices[after]
        fewest = jnp.minimum(self.distinct, after.distinct)
        return Routes((*self.plans, *after.plans), after.take(self.indices), fewest)


def ring(particles: int, islands: int, count: int) -> Any:
    """Return where each particle comes from if so many of each island go on to the next, as indices or as routes."""
    indices = along_ring(particles, islands, count)
    if (over := devices(particles)) == 1:
        return indices
    way = Ring(islands // over, count, jax.sharding.get_abstract_mesh())
    return Routes((way,), laid_out(jnp.asarray(indices), particles), particles)


def route(mass: Wide, slot_ends: Any, rotation: Any, stays: Any, size: int) -> Routes:
    """Return the routes of L particles to L slots, the first of which is the slot of this number.

    Args:
        mass: the weights, as integers.
        slot_ends: from the ends of masses and their sum to the slots at which the next particle begins.
        rotation: which slot the first particle takes.
        stays: whether every particle stays what it is.
        size: how many particles there are.
    """

    def local(mass: Wide, rotation: Any, stays: Any) -> Any:
        device, devices = jax.lax.axis_index(AXIS), jax.lax.axis_size(AXIS)
        own = mass.low.shape[0]
        ends = prefix_sums(mass)
        sums = prefix_sums(jax.lax.all_gather(ends.last(), AXIS))
        before = jax.tree.map(lambda x: jnp.where(device == 0, 0, x[device - 1]).astype(x.dtype), sums)
        whole = sums.last()
        # XLA would compute slots again wherever they are used; not across a condition.
        ends = jax.lax.cond(
            (whole.high | whole.low) != 0,
            lambda ends: slot_ends(ends, whole),
            lambda ends: jnp.zeros(own, jnp.int32),
            add(ends, before),
        )
        # Where weights are no numbers the last particle holds what is left over.
        ends = ends.at[-1].set(jnp.where(device == devices - 1, size, ends[-1]))
        here = device * own + jnp.arange(own)
        ends, rotation = jnp.where(stays, here + 1, ends), jnp.where(stays, 0, rotation)
        order, slots, starts, sent = _sent(ends, rotation, size)
        # Each device tells each other one how many it sends: all of them together would be the square of the devices.
        got = jax.lax.all_to_all(sent, AXIS, 0, 0, tiled=True)
        message = message_size(own)
        links, rounds = linked(starts, sent, got, message)
        held = _held(received(slots, links, rounds, message)[:own], got, rotation, size)
        indices = take(received(take(here, order), links, rounds, message), held)
        distinct = jax.lax.psum(jnp.sum(slots < size), AXIS)
        return (order, links, rounds, held), indices, distinct

    specs = Wide(SPLIT, SPLIT), WHOLE, WHOLE
    routed = apart_on_devices(local, specs, (SPECS, SPLIT, WHOLE))(mass, rotation, stays)
    (order, links, rounds, held), indices, distinct = routed
    message = message_size(size // rounds.shape[0])
    plan = Plan(order, links, rounds, held, message, jax.sharding.get_abstract_mesh())
    return Routes((plan,), indices, distinct)


def _sent(ends: Any, rotation: Any, size: int) -> tuple[Any, Any, Any, Any]:
    """Return the survivors of a device in order, their first slots, and which of them each device gets."""
    device, devices, own = jax.lax.axis_index(AXIS), jax.lax.axis_size(AXIS), ends.shape[0]
    lasts = jax.lax.all_gather(ends[-1], AXIS)
    first, last = jnp.where(device == 0, 0, lasts[device - 1]), ends[-1]
    begins = jnp.concatenate([first[None], ends[:-1]])
    survives = ends > begins
    number = prefix_sums(survives.astype(jnp.int32))
    # Those who die go to a place of their own: to check bounds, or to fill two arrays, takes much longer.
    place, here = jnp.where(survives, number - 1, own), jnp.arange(own, dtype=jnp.int32)
    order = jnp.zeros(own + 1, jnp.int32).at[place].set(here, mode="promise_in_bounds")[:own]
    slots = jnp.where(here < number[-1], take(begins, order), size).astype(jnp.int32)
    # A device takes `own` slots from `rotation + receiver * own` on: up to the end, and then from the beginning.
    edges, until_end = jnp.arange(devices + 1) * own, size - rotation
    edges = jnp.stack([rotation + jnp.minimum(edges, until_end), jnp.maximum(edges - until_end, 0)], axis=-1)
    edges = jnp.clip(edges, first, last)
    low, high = edges[:-1], edges[1:]
    start = jnp.searchsorted(slots, low.ravel(), side="right").reshape(low.shape) - 1
    stop = jnp.searchsorted(slots, high.ravel(), side="left").reshape(low.shape)
    count = jnp.where(low < high, stop - start, 0)
    return order, slots, jnp.maximum(start, 0), count


def _held(begins: Any, got: Any, rotation: Any, size: int) -> Any:
    """Return which of the received particles is in each slot of a device, from the slots at which they begin."""
    device, own = jax.lax.axis_index(AXIS), begins.shape[0]
    up_to_end, from_beginning = jnp.sum(got, axis=0)
    number = jnp.arange(own)
    place = begins - rotation + jnp.where(number < up_to_end, 0, size) - device * own
    place = jnp.where(number < up_to_end + from_beginning, jnp.maximum(place, 0), own)
    marks = jnp.zeros(own + 1, jnp.int32).at[place].add(1, mode="promise_in_bounds", indices_are_sorted=True)
    return prefix_sums(marks[:own]) - 1
