"""Log weights of large magnitude and weights of zero: objectives see differences between particles, in any position."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard import objectives
from steelyard.objectives import bounds
from steelyard.objectives.estimators import beyond_others
from steelyard.particles.weights import total

OFFSETS = [0.0, 1e5, -1e6, 1e7, -3.3e7]
OBJECTIVES: dict[str, Callable[[sy.Level], Any]] = {
    name: getattr(objectives, name)
    for name in ("elbo", "iwae", "vimco", "reverse_kl", "forward_kl", "wake_phi", "wake_theta", "rws", "avo", "apg")
}
BOUNDS = ("elbo", "iwae", "vimco", "wake_theta", "rws", "avo", "apg")


def loss(objective: Any, offset: Any, params: Any, discrete: bool) -> Any:
    """A weighted proposal, and a target with an observation whose log density has the offset."""

    def model(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(params["mean"], 1.0))
        c = s.sample("c", dist.Bernoulli(0.4)) if discrete else 0.0
        s.factor("data", offset - 0.5 * (z - 0.7 * c - params["datum"]) ** 2)
        return z

    def guide(s: sy.State) -> Any:
        s.sample("z", dist.Normal(params["guide"], 1.1))
        if discrete:
            s.sample("c", dist.Bernoulli(logits=params["logits"]))

    return sy.evaluate(sy.propose(model, guide, objective=objective), jax.random.key(3), particles=7).loss


PARAMS = {"mean": 0.3, "guide": -0.2, "datum": 1.1, "logits": 0.5}


@cache
def compiled(name: str, discrete: bool) -> Any:
    """One program for all offsets."""
    return jax.jit(jax.value_and_grad(lambda p, offset: loss(OBJECTIVES[name], offset, p, discrete)))


def value_and_gradient(name: str, offset: float, discrete: bool) -> Any:
    value, slopes = compiled(name, discrete)(jax.tree.map(jnp.float32, PARAMS), jnp.float32(offset))
    return float(value), {k: float(x) for k, x in slopes.items()}


@pytest.mark.parametrize("offset", OFFSETS[1:])
@pytest.mark.parametrize("discrete", [True, False], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_values_and_gradients_at_an_offset(name: str, discrete: bool, offset: float) -> None:
    """What the data's log density loses in single precision, an ulp at the offset, may change a weight by so much."""
    value, slopes = value_and_gradient(name, offset, discrete)
    exact, expected = value_and_gradient(name, 0.0, discrete)
    digit = float(np.spacing(np.float32(abs(offset))))
    shift = -offset if name in BOUNDS else 0.0
    assert abs(value - (exact + shift)) <= 2.5 * digit + 1e-5
    assert np.isfinite(list(slopes.values())).all()
    if digit < 0.1:
        for parameter, slope in expected.items():
            assert abs(slopes[parameter] - slope) <= 8 * digit + 1e-4, parameter


def fake_level(log_w: Any, log_v: Any, score: Any) -> Any:
    """A level of given weights, for objectives that look at nothing else."""
    return SimpleNamespace(log_w=log_w, log_v=log_v, log_weight=log_w + log_v, score=score)


V = np.array([0.3, -1.2, 0.9, -4.0, 0.0, 2.2], np.float32)
ZEROS = {
    "none": V,
    "one": np.where(np.arange(6) == 1, -np.inf, V),
    "two": np.where(np.arange(6) % 4 == 1, -np.inf, V),
    "all but one": np.where(np.arange(6) == 2, V, -np.inf),
    "far apart": V * np.float32(3e4),
    "the first": np.where(np.arange(6) == 0, -np.inf, V),
    "the last": np.where(np.arange(6) == 5, -np.inf, V),
}


def signals(log_v: np.ndarray, geometric: bool) -> np.ndarray:
    """The coefficient of each particle's score in the gradient of log Z, by leaving out each particle in turn."""
    x = np.asarray(log_v, np.float64)
    size, found = len(x), []
    log_z = np.logaddexp.reduce(x) - np.log(size)
    for l in range(size):
        others = np.delete(x, l)
        if geometric:
            baseline = np.logaddexp.reduce([*others, others.mean()]) - np.log(size)
        else:
            baseline = np.logaddexp.reduce(others) - np.log(size - 1)
        found.append(log_z - (0.0 if np.isneginf(baseline) else baseline))
    return np.array(found)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", list(ZEROS))
@pytest.mark.parametrize("objective", ["iwae", "vimco"])
def test_signals_are_those_of_leaving_out_each_particle(objective: str, name: str, offset: float) -> None:
    """The offset is in the weights that came in, so that nothing is lost of the differences."""
    log_w = jnp.full(6, offset)
    level = lambda score: fake_level(log_w, jnp.asarray(ZEROS[name], jnp.float32), score)  # noqa: E731
    found = jax.grad(lambda score: -getattr(bounds, objective)(level(score)))(jnp.zeros(6))
    expected = signals(ZEROS[name], objective == "vimco")
    if name == "all but one":
        expected[2] += offset
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_baselines_take_linear_memory() -> None:
    def gradient(v: Any) -> Any:
        return jax.grad(lambda score: bounds.vimco(fake_level(jnp.zeros_like(v), v, score)))(jnp.zeros_like(v))

    compiled = jax.jit(gradient).lower(jnp.zeros(4096)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4096 * 4 * 100


@pytest.mark.parametrize("offset", OFFSETS)
def test_differences_from_the_others(offset: float) -> None:
    x = jnp.asarray([4.0, 0.0, -8.0, 12.0]) + jnp.float32(offset)
    np.testing.assert_allclose(beyond_others(x), (np.array([4.0, 0.0, -8.0, 12.0]) - 2.0) * 4 / 3, rtol=1e-6)
    assert abs(float(total(beyond_others(x)))) < 1e-5


def test_vimco_learns_where_a_category_is_impossible() -> None:
    """Runs in which some particles have weight zero have a gradient; those in which all have an infinite loss."""

    def q(logits: Any) -> Any:
        def model(s: sy.State) -> None:
            z = s.sample("z", dist.Categorical(jnp.asarray([0.4, 0.4, 0.2])))
            s.factor("f", jnp.where(z == 1, -jnp.inf, 0.5 * z))

        return sy.propose(model, lambda s: s.sample("z", dist.Categorical(logits=logits)), objective=objectives.vimco)

    def run(logits: Any, key: Any) -> Any:
        return sy.evaluate(q(logits), key, particles=3).loss

    keys = jax.random.split(jax.random.key(0), 64)
    losses, gradients = jax.vmap(jax.value_and_grad(run), (None, 0))(jnp.asarray([0.1, 0.4, -0.3]), keys)
    possible = np.isfinite(losses)
    assert 40 < possible.sum() < 64
    assert np.isfinite(np.asarray(gradients)[possible]).all()
