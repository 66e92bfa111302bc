"""Resampling: who is drawn, with which probability, exactly and with random noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.particles.resampling import RESAMPLERS, Noise, ancestors, distinct, draw_noise
from steelyard.testing.outcomes import every_noise

METHODS = pytest.mark.parametrize("method", list(RESAMPLERS))
WEIGHTS = {
    "uneven": [0.1, 0.25, 0.65],
    "zero first": [0.0, 0.7, 0.3],
    "zero last": [0.45, 0.55, 0.0],
    "two copies at least": [0.8, 0.15, 0.05],
    "equal": [0.25, 0.25, 0.25, 0.25],
    "whole multiples": [0.5, 0.25, 0.25, 0.0],
    "one": [1.0, 0.0],
    "alone": [1.0],
}


def log(weights: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(weights, float))


def probabilities(method: str, weights: np.ndarray) -> np.ndarray:
    """Return P(a_l = k) in row l and column k, by going through all the noise there is."""
    size = len(weights)
    result = np.zeros((size, size))
    for probability, noise in every_noise(method, weights):
        indices = ancestors(log(weights), method, noise, size)
        result[np.arange(size), indices] += probability
    return result


@METHODS
@pytest.mark.parametrize("name", list(WEIGHTS))
def test_every_single_particle_draws_in_proportion_to_weight(method: str, name: str) -> None:
    w = np.array(WEIGHTS[name])
    np.testing.assert_allclose(probabilities(method, w), np.tile(w, (len(w), 1)), atol=1e-12)


@METHODS
def test_without_the_rotation_particles_would_be_in_order(method: str) -> None:
    w = np.array(WEIGHTS["uneven"])
    found = np.zeros(3)
    for probability, noise in every_noise(method, w):
        first = ancestors(log(w), method, Noise(noise.uniforms, 0), 3)[0]
        found[first] += probability
    # The test above is sharp: particle 0 alone is off for every method that orders its ancestors.
    assert np.allclose(found, w) == (not RESAMPLERS[method].ordered)


@METHODS
def test_random_noise_gives_the_same_probabilities(method: str) -> None:
    w, runs = np.array([0.05, 0.3, 0.0, 0.45, 0.2]), 40_000
    log_w = jnp.asarray(log(w), jnp.float32)
    keys = jax.random.split(jax.random.key(11), runs)
    drawn = jax.jit(jax.vmap(lambda key: ancestors(log_w, method, draw_noise(key, method, 5), 5)))(keys)
    frequency = np.stack([np.mean(np.asarray(drawn) == k, axis=0) for k in range(5)], axis=1)
    error = np.sqrt(np.maximum(w * (1 - w), 1e-12) / runs)
    assert np.abs((frequency - w) / error).max() < 4.5


@METHODS
def test_low_variance_methods_keep_every_sure_copy(method: str) -> None:
    w = np.array([0.55, 0.05, 0.4])
    for _, noise in every_noise(method, w):
        copies = np.bincount(ancestors(log(w), method, noise, 3), minlength=3)
        assert copies.sum() == 3
        if method == "systematic":
            assert (np.abs(copies - 3 * w) < 1).all()
        if method == "stratified":
            assert (np.abs(copies - 3 * w) < 2).all()
        if method == "residual":
            assert (copies >= np.floor(3 * w)).all()


@METHODS
@pytest.mark.parametrize("size", [2, 11])
def test_more_or_fewer_particles_than_there_were(method: str, size: int) -> None:
    w, runs = np.array([0.2, 0.0, 0.5, 0.3]), 20_000
    log_w = jnp.asarray(log(w), jnp.float32)
    keys = jax.random.split(jax.random.key(3), runs)
    drawn = np.asarray(
        jax.jit(jax.vmap(lambda key: ancestors(log_w, method, draw_noise(key, method, size), size)))(keys)
    )
    assert drawn.shape == (runs, size)
    for l in (0, size - 1):
        frequency = np.bincount(drawn[:, l], minlength=4) / runs
        np.testing.assert_allclose(frequency, w, atol=4.5 * 0.5 / np.sqrt(runs))


@METHODS
def test_one_particle_is_its_own_ancestor(method: str) -> None:
    noise = draw_noise(jax.random.key(0), method, 1)
    assert ancestors(np.array([-3.0]), method, noise.to_uniforms(), 1).tolist() == [0]
    assert ancestors(jnp.array([-3.0]), method, noise, 1).tolist() == [0]


@METHODS
def test_many_particles_in_single_precision(method: str) -> None:
    """Prefix sums are rounded one by one: they may fall, and they may rise at a particle of weight zero."""
    size = 100_000
    rng = np.random.default_rng(5)

    @jax.jit
    def draw(log_w: jax.Array, key: jax.Array) -> jax.Array:
        return ancestors(log_w, method, draw_noise(key, method, size), size)

    for spread in (0.0, 3.0, 3.0, 30.0):
        impossible = rng.random(size) < 0.5
        log_w = np.where(impossible, -np.inf, spread * rng.standard_normal(size)).astype(np.float32)
        for key in jax.random.split(jax.random.key(0), 3):
            indices = np.asarray(draw(log_w, key))
            assert indices.min() >= 0
            assert indices.max() < size
            assert not impossible[indices].any()


@METHODS
def test_uniforms_next_to_one_stay_in_range(method: str) -> None:
    w = log([0.3, 0.7, 0.0])
    count = RESAMPLERS[method].uniforms(3)
    last, first = (Noise(np.full(count, u), 0) for u in (np.nextafter(1.0, 0.0), 0.0))
    for array, noise in ((np.asarray, Noise), (lambda x: jnp.asarray(x, jnp.float32), Noise.from_uniforms)):
        assert set(ancestors(array(w), method, noise(*last), 3).tolist()) <= {0, 1}
        assert set(ancestors(array(np.flip(w)), method, noise(*first), 3).tolist()) <= {1, 2}


@METHODS
def test_weights_without_information_give_indices_in_range(method: str) -> None:
    for bad in (-jnp.inf, jnp.nan):
        log_w = jnp.full(4, bad)
        indices = np.asarray(ancestors(log_w, method, draw_noise(jax.random.key(0), method, 4), 4))
        assert ((indices >= 0) & (indices < 4)).all()


def test_distinct_counts_ancestors() -> None:
    for array in (np.array, jnp.array):
        assert int(distinct(array([4, 1, 1, 0, 4]))) == 3


@pytest.mark.parametrize(("particles", "size"), [(1000, 1000), (3000, 500), (700, 2000)])
@pytest.mark.parametrize("method", ["systematic", "stratified"])
def test_many_particles_are_counted_as_few_are_searched(particles: int, size: int, method: str) -> None:
    """With many particles the ancestors are counted and not searched; rounding may shift a position at an edge."""
    rng = np.random.default_rng(particles)
    weights = rng.gamma(0.3, size=particles) * (rng.random(particles) < 0.7)
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    noise = Noise(rng.random(RESAMPLERS[method].uniforms(size)), 3)
    searched = ancestors(log_weights, method, noise, size)
    counted = np.asarray(ancestors(jnp.asarray(log_weights), method, Noise.from_uniforms(*noise), size))
    assert (weights[counted] > 0).all()
    assert (searched != counted).sum() <= 3


def test_many_weights_that_are_all_zero_give_ancestors_in_range() -> None:
    found = np.asarray(ancestors(jnp.full(1000, -jnp.inf), "systematic", Noise.from_uniforms([0.3], 1), 1000))
    assert ((found >= 0) & (found < 1000)).all()


def test_a_resampling_is_few_equations_however_often_it_is_written() -> None:
    def resampled(log_weights: Any, key: Any) -> Any:
        return ancestors(log_weights, "systematic", draw_noise(key, "systematic", 20), 20)

    # Exact integers take some hundred equations, which are traced once for all resamplings of this size.
    assert len(jax.make_jaxpr(resampled)(jnp.zeros(20), jax.random.key(0)).jaxpr.eqns) < 30
