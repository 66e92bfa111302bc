"""Resampling within islands: groups of particles that lie next to each other and do not exchange any.

Each particle of an island takes the average weight of the island, which the island then counts among others. Nothing
but these averages is known of one island in another. Islands stay in touch in either of two ways. Where the averages
become too different, all particles are resampled together, once, which makes them equal again (Whiteley, Lee and Heine,
2016). Or some particles of each island go on to the next one, along a ring, and take their weights with them (Heine and
Whiteley, 2017): as that is nothing but another order of the particles, they are as properly weighted as before.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.devices.exchange import Within
from steelyard.devices.layout import AXIS, SPLIT, WHOLE, apart_on_devices, devices
from steelyard.devices.routes import Routes, ring
from steelyard.errors import ArgumentError
from steelyard.particles.resampling import Noise, ancestors
from steelyard.particles.weights import log_mean_in_any_order


def in_islands(log_weights: Any, islands: int) -> Any:
    """Return log weights by island.

    Raises:
        ArgumentError: islands cannot have as many particles each, or are not shared out evenly to devices.
    """
    size = log_weights.shape[0]
    if size % islands:
        raise ArgumentError(
            f"resample: {size:,} particles cannot be shared out evenly to {islands} islands. Use a multiple."
        )
    if (count := devices(size)) > 1 and islands % count:
        raise ArgumentError(
            f"resample: {islands} islands cannot be shared out evenly to {count} devices. Use a multiple of {count}."
        )
    return log_weights.reshape(islands, -1)


def average_weights(rows: Any) -> Any:
    """Return the log of the average weight of each island."""
    if isinstance(rows, np.ndarray):
        return np.array([log_mean_in_any_order(row) for row in rows])
    averages = jax.vmap(log_mean_in_any_order)
    return apart_on_devices(averages, SPLIT, SPLIT)(rows) if devices(rows.shape[0]) > 1 else averages(rows)


def ancestors_within(rows: Any, method: str, noises: Noise) -> Any:
    """Return for each particle its ancestor, which is of the same island.

    Args:
        rows: log weights by island.
        method: how each island is resampled.
        noises: the noise of each of them, along a first axis.
    """
    islands, size = rows.shape
    if isinstance(rows, np.ndarray):
        each_noise = map(Noise, noises.uniforms, noises.rotation)
        parts = [ancestors(row, method, noise, size) for row, noise in zip(rows, each_noise, strict=True)]
        return np.concatenate([size * i + part for i, part in enumerate(parts)])

    def each(rows: Any, noises: Noise) -> Any:
        found = jax.vmap(lambda row, noise: ancestors(row, method, noise, size))(rows, noises)
        return (found + size * jnp.arange(rows.shape[0])[:, None]).ravel()

    if devices(islands) == 1:
        return each(rows, noises)

    def local(rows: Any, noises: Noise) -> Any:
        here = each(rows, noises)
        distinct = jnp.zeros(here.shape, bool).at[here].set(True).sum()
        return here, here + jax.lax.axis_index(AXIS) * here.shape[0], jax.lax.psum(distinct, AXIS)

    here, indices, distinct = apart_on_devices(local, SPLIT, (SPLIT, SPLIT, WHOLE))(rows, noises)
    return Routes((Within(here, jax.sharding.get_abstract_mesh()),), indices, distinct)


def gone_on(particles: int, islands: int, share: float) -> Any:
    """Return where each particle comes from if this share of each island, at least one, goes on to the next."""
    return ring(particles, islands, math.ceil(share * (particles // islands)))


def chosen(separately: Any, within: Any, together: Any) -> Any:
    """Return the ancestors within islands where these remain separate, and those among all particles elsewhere.

    `together` has every particle stay where it is if islands remain separate.
    """
    if not isinstance(within, Routes):
        xp = within.__array_namespace__()
        return xp.where(separately, within, together)
    return within.if_so(separately).then(together)
