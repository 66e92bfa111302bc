"""Resampling in single precision, against integers: shares of many particles, and probabilities of few."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steelyard as sy
from steelyard.particles.resampling import MOST, RESAMPLERS, Noise, ancestors, draw_noise
from steelyard.particles.weights import scaled
from steelyard.testing.enumeration import every_noise
from tests.particles.test_resampling import METHODS, WEIGHTS, log

OFFSETS = [0.0, 1e5, -1e6, 1e7, -3.3e7]


def copies(log_w: Any, method: str, noise: Noise, size: int) -> np.ndarray:
    drawn = jax.jit(lambda w, noise: ancestors(w, method, noise, size))(log_w, noise)
    return np.bincount(np.asarray(drawn), minlength=log_w.shape[0])


@pytest.mark.parametrize("uniform", [0.0, 0.3, 1 - 2**-24, 1 - 2**-31])
@pytest.mark.parametrize("size", [3, 129, 2**24 + 3])
def test_equal_weights_keep_every_particle_once(size: int, uniform: float) -> None:
    if size > 1000 and uniform not in (0.3, 1 - 2**-31):
        return
    noise = Noise.from_uniforms([uniform], size // 3)
    assert (copies(jnp.full(size, -7.3), "systematic", noise, size) == 1).all()


@pytest.mark.parametrize("method", ["stratified", "residual"])
def test_equal_weights_of_many_particles(method: str) -> None:
    size = 2**21 + 1
    assert (copies(jnp.zeros(size), method, draw_noise(jax.random.key(0), method, size), size) == 1).all()


@pytest.mark.parametrize(
    ("particles", "size"), [pytest.param(10**7, 10**7, marks=pytest.mark.long), (3 * 10**6, 1001), (1001, 3 * 10**6)]
)
def test_systematic_copies_are_those_of_exact_sums(particles: int, size: int) -> None:
    """Weights as they are in single precision, added up as integers."""
    log_w = 2 * jax.random.normal(jax.random.key(1), (particles,))
    log_w = jnp.where(jnp.arange(particles) % 7 == 3, -jnp.inf, log_w)
    found = copies(log_w, "systematic", Noise.from_uniforms([0.6180339], 5), size)
    w = np.asarray(jax.jit(scaled)(log_w), np.float64)
    # Sums of integers are exact; these have as many digits as fit.
    ends = np.cumsum((w * 2.0 ** (61 - int(np.log2(w.sum())))).astype(np.int64))
    places = ends.astype(np.longdouble) * size / int(ends[-1]) - np.longdouble(0.6180339)
    expected = np.diff(np.ceil(places).astype(np.int64).clip(0, size), prepend=0)
    # At most one position in 2^30 is so close to the end of a particle that it falls to the next one.
    assert (found != expected).sum() <= 2
    assert (np.abs(found - size * w / w.sum()) < 1.001).all()
    assert not found[w == 0].any()


@pytest.mark.parametrize("method", ["stratified", "multinomial", "residual"])
def test_shares_of_groups_of_many_particles(method: str) -> None:
    particles = 2**20 + 5
    log_w = jnp.where(jnp.arange(particles) < particles // 3, 1.0, 0.0) * np.log(2.5)
    found = copies(log_w, method, draw_noise(jax.random.key(2), method, particles), particles)
    count = particles // 3
    share = 2.5 * count / (2.5 * count + particles - count)
    error = {"stratified": 1.0 / particles, "residual": 0.25, "multinomial": 1.0}[method]
    deviation = abs(found[:count].sum() / particles - share)
    assert deviation < 4.5 * np.sqrt(error * share * (1 - share) / particles) + 1 / particles


@METHODS
@pytest.mark.parametrize("name", list(WEIGHTS))
def test_every_particle_draws_in_proportion_to_weight_in_single_precision(method: str, name: str) -> None:
    w = np.array(WEIGHTS[name])
    size = len(w)
    log_w = jnp.asarray(log(w), jnp.float32)
    noises = list(every_noise(method, w))
    words = [Noise.from_uniforms(noise.uniforms, noise.rotation) for _, noise in noises]
    stacked = jax.tree.map(lambda *xs: jnp.stack([jnp.asarray(x) for x in xs]), *words)
    drawn = np.asarray(jax.jit(jax.vmap(lambda noise: ancestors(log_w, method, noise, size)))(stacked))
    found = np.zeros((size, size))
    for (probability, _), indices in zip(noises, drawn, strict=True):
        found[np.arange(size), indices] += probability
    np.testing.assert_allclose(found, np.tile(w, (size, 1)), atol=2e-6)


@METHODS
def test_both_forms_choose_the_same_ancestors(method: str) -> None:
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        for size in (1, 2, 5, 200, 3000):
            log_w = np.where(rng.random(size) < 0.2, -np.inf, rng.normal(size=size) - 1e4)
            log_w[size // 2] = -1e4
            noise = draw_noise(jax.random.key(size), method, size)
            expected = ancestors(log_w, method, noise.to_uniforms(), size)
            np.testing.assert_array_equal(ancestors(jnp.asarray(log_w), method, noise, size), expected)


@METHODS
@pytest.mark.parametrize("offset", OFFSETS)
def test_an_offset_changes_no_ancestor(method: str, offset: float) -> None:
    # Differences that single precision holds at every offset.
    log_w = jnp.asarray(4.0 * np.random.default_rng(0).integers(0, 4, 500), jnp.float32)
    noise = draw_noise(jax.random.key(0), method, 500)
    moved = ancestors(log_w + jnp.float32(offset), method, noise, 500)
    np.testing.assert_array_equal(moved, ancestors(log_w, method, noise, 500))


def test_noise_is_the_same_in_words_and_in_floats() -> None:
    uniforms = np.concatenate([np.random.default_rng(0).random(99), [0.0, 1 - 2.0**-53, 2.0**-53]])
    np.testing.assert_array_equal(Noise.from_uniforms(uniforms, 0).to_uniforms().uniforms, uniforms)
    drawn = draw_noise(jax.random.key(0), "multinomial", 10_000).to_uniforms().uniforms
    assert abs(drawn.mean() - 0.5) < 0.015
    assert np.unique(drawn).size == 10_000


def test_rotations_are_uniform() -> None:
    keys = jax.random.split(jax.random.key(0), 6000)
    found = jax.vmap(lambda key: draw_noise(key, "systematic", 6).rotation)(keys)
    assert (np.abs(np.bincount(found, minlength=6) - 1000) < 4.5 * np.sqrt(1000 * 5 / 6)).all()


@METHODS
def test_all_weight_on_one_of_many(method: str) -> None:
    log_w = jnp.full(3000, -jnp.inf).at[1234].set(-4e5)
    found = ancestors(log_w, method, draw_noise(jax.random.key(0), method, 3000), 3000)
    assert (np.asarray(found) == 1234).all()


@METHODS
def test_weights_without_information_give_indices_in_range_of_many(method: str) -> None:
    for bad in (-jnp.inf, jnp.nan, jnp.inf):
        for log_w in (jnp.full(3000, bad), jnp.zeros(3000).at[7].set(bad)):
            found = np.asarray(ancestors(log_w, method, draw_noise(jax.random.key(0), method, 3000), 3000))
            assert ((found >= 0) & (found < 3000)).all()


def test_more_particles_than_there_are_indices() -> None:
    many = jax.ShapeDtypeStruct((MOST + 1,), jnp.float32)
    for size in (2, MOST + 1):
        noise = Noise.from_uniforms([0.5] * RESAMPLERS["systematic"].uniforms(size), 0)
        with pytest.raises(sy.ArgumentError, match=r"at most 2\^31 - 1 particles, got 2,147,483,648"):
            jax.eval_shape(lambda w, size=size, noise=noise: ancestors(w, "systematic", noise, size), many)


@METHODS
@pytest.mark.parametrize("size", [33, 100, 128])
def test_the_ancestors_of_a_batch_are_those_of_its_rows(method: str, size: int) -> None:
    log_w = jnp.asarray(np.random.default_rng(size).normal(size=(5, size)), jnp.float32).at[1, :20].set(-jnp.inf)
    keys = jax.random.split(jax.random.key(size), 5)

    def resampled(key: Any, w: Any) -> Any:
        return ancestors(w, method, draw_noise(key, method, size), size)

    found = jax.jit(jax.vmap(resampled))(keys, log_w)
    for row, key, w in zip(found, keys, log_w, strict=True):
        expected = ancestors(np.asarray(w), method, draw_noise(key, method, size).to_uniforms(), size)
        # Weights of 32 bits and of 64 bits: at most one position is that close to the end of a particle.
        assert (np.asarray(row) != expected).sum() <= 1


@METHODS
def test_a_batch_needs_no_table_of_comparisons(method: str) -> None:
    size, batch = 128, 100
    log_w = jax.ShapeDtypeStruct((batch, size), jnp.float32)
    keys = jax.random.split(jax.random.key(0), batch)

    def resampled(key: Any, w: Any) -> Any:
        return ancestors(w, method, draw_noise(key, method, size), size)

    compiled: Any = jax.jit(jax.vmap(resampled)).lower(keys, log_w).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < batch * size * 100
