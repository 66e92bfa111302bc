"""The streams of random numbers: one per particle, from one key."""

import itertools
import math
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax.extend.random import threefry_2x32

import steelyard as sy
from steelyard.compiler.randomness import First, Kind, first_of, keys_of_rows, particle_key, scattered

KEY = jax.random.key(2021)
MANY = 100_000


def normals(key: jax.Array, particles: int, shape: tuple[int, ...] = ()) -> np.ndarray:
    draw = jax.vmap(lambda l: jax.random.normal(particle_key(scattered(key), l), shape))
    return np.asarray(jax.jit(draw)(jnp.arange(particles)))


@pytest.mark.parametrize("particle", [0, 1, 7, 2**31, 2**32 - 1])
def test_bits_are_those_of_threefry_with_the_particle_in_the_counter(particle: int) -> None:
    words = scattered(KEY)
    bits = jax.random.bits(particle_key(words, particle), (5,))
    for low in range(5):
        high_word, low_word = threefry_2x32(words, jnp.array([particle, low], jnp.uint32))
        assert int(bits[low]) == int(high_word ^ low_word)


@pytest.mark.parametrize("particle", [0, 3])
def test_derived_keys_are_those_of_threefry(particle: int) -> None:
    words = scattered(KEY)
    key = particle_key(words, particle)
    for data in (0, 12345):
        expected = threefry_2x32(words, jnp.array([particle, data], jnp.uint32))
        assert jax.random.key_data(jax.random.fold_in(key, data))[:2].tolist() == expected.tolist()
    for index, child in enumerate(jax.random.split(key, 3)):
        expected = threefry_2x32(words, jnp.array([particle, index], jnp.uint32))
        assert jax.random.key_data(child)[:2].tolist() == expected.tolist()


def test_narrow_and_wide_bits_are_uniform() -> None:
    key = particle_key(scattered(KEY), 5)
    for dtype in (jnp.uint8, jnp.uint16):
        bits = np.asarray(jax.random.bits(key, (40_000,), dtype))
        ones = np.unpackbits(bits.view(np.uint8).reshape(40_000, -1), axis=1)
        assert np.abs(ones.mean(axis=0) - 0.5).max() < 4.5 * 0.5 / math.sqrt(40_000)
    with jax.enable_x64(True):
        doubles = np.asarray(jax.random.uniform(key, (20_000,), jnp.float64))
    assert scipy.stats.kstest(doubles, "uniform").pvalue > 1e-4
    # Bits beyond single precision are random too.
    assert scipy.stats.kstest((doubles * 2**24) % 1, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_any_implementation(impl: str) -> None:
    def model(s: sy.State) -> jax.Array:
        return s.sample("z", dist.Normal(0.0, 1.0))

    one, same, other = (
        np.asarray(sy.evaluate(model, jax.random.key(seed, impl=impl), particles=2000).value) for seed in (1, 1, 2)
    )
    assert (one == same).all()
    assert (one != other).all()
    assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / math.sqrt(2000)
    assert scipy.stats.kstest(one, "norm").pvalue > 1e-4


def test_scalars_of_many_particles_are_normal() -> None:
    z = normals(KEY, MANY)
    assert abs(z.mean()) < 4.5 / math.sqrt(MANY)
    assert abs(z.var() - 1) < 4.5 * math.sqrt(2 / MANY)
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-4
    # Neighbouring particles, and those a power of two apart, have nothing to do with each other.
    for lag in (1, 2, 256, 65_536):
        assert abs(np.mean(z[lag:] * z[:-lag])) < 4.5 / math.sqrt(MANY - lag)


def test_vectors_of_many_particles_are_independent_normals() -> None:
    z = normals(KEY, 30_000, (4,))
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=4.5 / math.sqrt(30_000))
    np.testing.assert_allclose(z.T @ z / 30_000, np.eye(4), atol=4.5 * math.sqrt(2 / 30_000))
    for component in z.T:
        assert scipy.stats.kstest(component, "norm").pvalue > 1e-4


def test_particles_sites_and_levels_never_share_a_number() -> None:
    def first(s: sy.State) -> jax.Array:
        return s.sample("a", dist.Uniform(0.0, 1.0)) + s.sample("b", dist.Uniform(jnp.zeros(3), jnp.ones(3))).sum()

    def second(s: sy.State, _: jax.Array) -> jax.Array:
        return s.sample("c", dist.Uniform(0.0, 1.0)) + s.sample("d", dist.Uniform(0.0, 1.0))

    out = sy.evaluate(sy.compose(second, first), KEY, particles=500)
    streams = [out.trace["a"], *out.trace["b"].T, out.trace["c"], out.trace["d"]]
    streams = [np.asarray(x) for x in streams]
    # 3,000 draws of 23 bits: a pair or two may meet by chance, a shared stream would meet 500 times.
    assert len(np.unique(np.concatenate(streams))) > 3000 - 10
    for x, y in itertools.combinations(streams, 2):
        assert abs(np.corrcoef(x, y)[0, 1]) < 4.5 / math.sqrt(500)


def test_a_draw_does_not_depend_on_how_many_particles_there_are() -> None:
    assert (normals(KEY, 3, (2,)) == normals(KEY, 8, (2,))[:3]).all()


def test_resampling_noise_is_apart_from_the_particles() -> None:
    def model(s: sy.State) -> None:
        s.factor("score", s.sample("u", dist.Uniform(0.0, 1.0)))

    keys = jax.random.split(KEY, 3000)
    run = jax.vmap(lambda k: sy.evaluate(sy.resample(model, method="multinomial"), k, particles=2))
    out = jax.jit(run)(keys)
    first = np.asarray(jax.jit(jax.vmap(lambda k: sy.evaluate(model, k, particles=2).trace["u"]))(keys))
    assert abs(np.corrcoef(first[:, 0] - first[:, 1], np.asarray(out.ancestors)[:, 0])[0, 1]) > 0.1
    # Given the weights the choice is random: which of two near-equal particles is taken is a fair coin.
    close = np.abs(first[:, 0] - first[:, 1]) < 0.05
    taken = np.asarray(out.ancestors)[close]
    assert abs(taken.mean() - 0.5) < 4.5 * 0.5 / math.sqrt(taken.size)
    assert abs(np.mean(taken[:, 0] == taken[:, 1]) - 0.5) < 4.5 * 0.5 / math.sqrt(close.sum())


@pytest.mark.parametrize(
    ("distribution", "mean", "variance"),
    [
        (dist.Poisson(3.0), 3.0, 3.0),
        (dist.NegativeBinomial2(3.0, 1.5), 3.0, 9.0),
        (dist.Gamma(2.5, 0.5), 5.0, 10.0),
        (dist.Beta(2.0, 5.0), 2 / 7, 10 / (49 * 8)),
        (dist.Binomial(6, 0.3), 1.8, 1.26),
        (dist.Categorical(jnp.array([0.2, 0.5, 0.3])), 1.1, 0.49),
        (dist.StudentT(9.0, 1.0, 2.0), 1.0, 4.0 * 9 / 7),
    ],
    ids=["Poisson", "NegativeBinomial", "Gamma", "Beta", "Binomial", "Categorical", "StudentT"],
)
def test_samplers_of_every_kind_draw_from_their_distribution(
    distribution: dist.Distribution, mean: float, variance: float
) -> None:
    particles = 10_000
    run = jax.jit(lambda key: sy.evaluate(lambda s: s.sample("z", distribution), key, particles=particles).value)
    values = np.asarray(run(KEY), float)
    assert abs(values.mean() - mean) < 4.5 * math.sqrt(variance / particles)
    assert abs(values.var() / variance - 1) < 0.12


def test_keys_that_follow_each_other_are_scattered() -> None:
    """Levels and sites count from there: the ranges of two keys must not meet."""
    keys = jnp.concatenate([jax.vmap(jax.random.key)(jnp.arange(3000)), jax.random.split(KEY, 3000)])
    words = np.asarray(jax.vmap(scattered)(keys), np.uint64)
    assert len({tuple(w) for w in words.tolist()}) == len(words)
    bits = np.unpackbits(np.asarray(words, np.uint32).view(np.uint8).reshape(len(words), -1), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 4.5 * 0.5 / math.sqrt(len(words))
    close = np.sort(words[:, 0] << np.uint64(32) | words[:, 1])
    assert np.diff(close).min() > 2**36 / len(words)


def test_a_key_is_scattered_by_one_call_of_threefry() -> None:
    apart = jnp.array([0x9E3779B9, 0x85EBCA6B], jnp.uint32)
    plain, wide = jax.random.key(7), jax.random.key(7, impl="rbg")
    words = jax.random.key_data(plain)
    assert scattered(plain).tolist() == threefry_2x32(words, apart).tolist()
    words = jax.random.key_data(wide)
    assert scattered(wide).tolist() == threefry_2x32(words[:2], words[2:]).tolist()
    # The key of a particle, with and without what is known of its first number.
    words = scattered(KEY)
    expected = threefry_2x32(words + jnp.array([4, 2], jnp.uint32), jnp.array([9, apart[0]], jnp.uint32)).tolist()
    own = particle_key(words, 9, 4, 2)
    assert scattered(own).tolist() == expected
    for kind in get_args(Kind):
        known = particle_key(words, 9, 4, 2, First(kind, first_of(kind, own)))
        assert scattered(known).tolist() == expected
    rotations = str(jax.make_jaxpr(scattered)(KEY)).count("shift_left")
    assert rotations == 20


def test_levels_sites_and_particles_draw_independently() -> None:
    def draws(words: jax.Array, level: int, site: int) -> np.ndarray:
        return np.asarray(jax.vmap(lambda l: jax.random.normal(particle_key(words, l, level, site)))(jnp.arange(5000)))

    words = scattered(KEY)
    table = np.stack([draws(words, level, site) for level in range(4) for site in range(4)])
    correlation = np.corrcoef(np.concatenate([table[:, :-1], table[:, 1:]]))
    np.fill_diagonal(correlation, 0.0)
    assert np.abs(correlation).max() < 5 / math.sqrt(5000)


def test_rows_have_keys_of_their_own() -> None:
    keys = keys_of_rows(jax.random.key(5), 1000)
    assert len({tuple(words) for words in np.asarray(jax.random.key_data(keys)).tolist()}) == 1000
    draws = np.asarray(jax.vmap(jax.random.normal)(keys))
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-3
    assert not np.array_equal(draws, np.asarray(jax.vmap(jax.random.normal)(keys_of_rows(jax.random.key(6), 1000))))
