"""The decoder of the generative model and the encoders of the proposals (appendix G.2)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from steelyard.experiments.tracking.shapes import PATCH

WHAT = 10
# How far the where-encoder can be from the average place: three pixels and a half of a canvas of 96.
CORRECTION = 0.1


class Decoder(eqx.Module):
    """What an object looks like: 10 -> 200 -> 400 -> 784."""

    layers: list[eqx.nn.Linear]

    def __init__(self, key: PRNGKeyArray) -> None:
        sizes = (WHAT, 200, 400, PATCH**2)
        self.layers = _layers(sizes, key)

    def __call__(self, what: Float[Array, "10"]) -> Float[Array, "patch patch"]:
        hidden = _hidden(self.layers[:-1], what)
        return jax.nn.sigmoid(self.layers[-1](hidden)).reshape(PATCH, PATCH)


class WhereEncoder(eqx.Module):
    """Where an object is, from how well it fits at each place; mean and scale.

    The fits go through a softmax, as in the authors' code. The mean is the average place under this softmax, plus a
    correction that is learned: the network need not learn first which input belongs to which place.
    """

    layers: list[eqx.nn.Linear]
    mean: eqx.nn.Linear
    log_scale: eqx.nn.Linear

    def __init__(self, places: int, key: PRNGKeyArray) -> None:
        k1, k2, k3 = jax.random.split(key, 3)
        self.layers = _layers((places**2, 200, 2 * 100), k1)
        self.mean, self.log_scale = eqx.nn.Linear(100, 2, key=k2), eqx.nn.Linear(100, 2, key=k3)

    def __call__(self, fits: Float[Array, "places places"]) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
        likely = jax.nn.softmax(fits.ravel()).reshape(fits.shape)
        line = jnp.linspace(-1.0, 1.0, len(fits))
        place = jnp.stack([likely.sum(axis=0) @ line, likely.sum(axis=1) @ line])
        mean, scale = jnp.split(_hidden(self.layers, likely.ravel()), 2)
        return place + CORRECTION * jnp.tanh(self.mean(mean)), _scale(self.log_scale(scale), least=0.003)


class WhatEncoder(eqx.Module):
    """Which object it is, from what is at its places in all frames: 784 -> 400 -> 200, and the median over frames.

    In some frames another object covers it, or was taken for it. They should not decide what it looks like.
    """

    statistics: list[eqx.nn.Linear]
    mean: eqx.nn.Linear
    log_scale: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray) -> None:
        k1, k2, k3 = jax.random.split(key, 3)
        self.statistics = _layers((PATCH**2, 400, 200), k1)
        self.mean, self.log_scale = eqx.nn.Linear(200, WHAT, key=k2), eqx.nn.Linear(200, WHAT, key=k3)

    def __call__(self, crops: Float[Array, "T patch patch"]) -> tuple[Float[Array, "10"], Float[Array, "10"]]:
        each = jax.vmap(lambda crop: _hidden(self.statistics, crop.ravel()))(crops)
        usual = jnp.median(each, axis=0)
        return self.mean(usual), _scale(self.log_scale(usual), least=0.01)


class Networks(eqx.Module):
    """All that is learned: theta is the decoder, phi are the encoders."""

    decoder: Decoder
    where: WhereEncoder
    what: WhatEncoder

    def __init__(self, key: PRNGKeyArray, canvas: int = 96) -> None:
        k1, k2, k3 = jax.random.split(key, 3)
        self.decoder, self.what = Decoder(k1), WhatEncoder(k3)
        self.where = WhereEncoder(canvas - PATCH + 1, k2)


def _layers(sizes: tuple[int, ...], key: PRNGKeyArray) -> list[eqx.nn.Linear]:
    keys = jax.random.split(key, len(sizes) - 1)
    return [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]


def _hidden(layers: list[eqx.nn.Linear], x: Any) -> Any:
    for layer in layers:
        x = jax.nn.relu(layer(x))
    return x


def _scale(log_scale: Float[Array, "n"], least: float) -> Float[Array, "n"]:
    """Return a scale between the least and 1: what is learned early on must not close the door."""
    return least + (1 - least) * jax.nn.sigmoid(log_scale - 1.0)
