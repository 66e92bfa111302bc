"""Backward sampling: its law given the particles, and the exact posterior that it tends to."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

KEY = jax.random.key(5)
YS = jnp.array([0.3, 1.0, -0.5, 2.0])
SLOPE, STATE_NOISE, DATA_NOISE = 0.9, 0.7, 0.5


def first(s: sy.State) -> Any:
    s.factor("y", 0.0)
    return s.sample("z", dist.Normal(0.4, 1.0))


def walk(y: Any) -> Callable[..., Any]:
    def transition(s: sy.State, z: Any) -> Any:
        z = s.sample("z", dist.Normal(SLOPE * z, STATE_NOISE))
        s.observe("y", dist.Normal(z, DATA_NOISE), y)
        return z

    return transition


def guide(y: Any) -> Callable[..., Any]:
    return lambda s, z: s.sample("z", dist.Normal(0.6 * z + 0.3 * y, 0.8))


def guided(q: Any, y: Any) -> Any:
    return sy.move(sy.propose(walk(y), guide(y)), sy.resample(q, threshold=0.5))


def kalman() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all states given all data, from their joint normal distribution."""
    size, ys = len(YS) + 1, np.asarray(YS, float)
    variances = [1.0]
    for _ in ys:
        variances.append(SLOPE**2 * variances[-1] + STATE_NOISE**2)
    prior = np.array([[variances[min(i, j)] * SLOPE ** abs(i - j) for j in range(size)] for i in range(size)])
    mean, seen = 0.4 * SLOPE ** np.arange(size), np.eye(size)[1:]
    gain = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + DATA_NOISE**2 * np.eye(len(ys)))
    return mean + gain @ (ys - seen @ mean), prior - gain @ seen @ prior


def test_a_guided_filter_against_the_kalman_smoother() -> None:
    size = 3000
    q = sy.scan(guided, first, YS, keep=["z"])
    out = sy.evaluate(q, KEY, particles=size, smoothing=True)
    draws = np.asarray(out.smoothed(jax.random.key(1), size)["z"], float)
    mean, covariance = kalman()
    # Draws and particles are as many, so that errors are those of about half as many independent draws.
    error = np.sqrt(2 / size)
    scale = np.sqrt(np.diag(covariance))
    assert (abs(draws.mean(axis=0) - mean) < 4.5 * error * scale).all()
    found = np.cov(draws.T)
    for lag in (0, 1):
        exact, spread = np.diag(covariance, lag), np.outer(scale, scale).diagonal(lag)
        assert (abs(np.diag(found, lag) - exact) < 4.5 * error * spread * np.sqrt(2 - lag * 0.5)).all()


START, STATES = np.array([0.5, 0.3, 0.2]), 3
MOVES = np.array([[0.7, 0.2, 0.1], [0.05, 0.55, 0.4], [0.3, 0.1, 0.6]])
# What is observed depends on the state before, too.
SHOWS = np.array([[0.9, 0.2, 0.6], [0.3, 0.1, 0.5], [0.4, 0.8, 0.25]])
COINS = np.array([1, 0, 1])


def hidden(s: sy.State, coins: Any) -> Any:
    z = s.sample("z", dist.Categorical(jnp.asarray(START)))
    s.observe("coin", dist.Bernoulli(0.2 + 0.3 * z), 1)
    return {"z": z, "coins": coins, "step": 0}


def flip(s: sy.State, value: Any) -> Any:
    before, coins, step = value["z"], value["coins"], value["step"]
    z = s.sample("z", dist.Categorical(jnp.asarray(MOVES)[before]))
    s.observe("coin", dist.Bernoulli(jnp.asarray(SHOWS)[before, z]), coins[step])
    return {"z": z, "coins": coins, "step": step + 1}


# The last resample changes the particles that come out, and nothing of what the steps had.
CHAIN = sy.resample(
    sy.scan(lambda q, _: sy.move(flip, sy.resample(q, threshold=0.7)), hidden, None, length=3, keep=["z"])
)
BOUND = float(np.log((MOVES * np.maximum(SHOWS, 1 - SHOWS)).max()))


def step_table(coin: int) -> np.ndarray:
    return MOVES * (SHOWS if coin else 1 - SHOWS)


def laws(draws: Any) -> np.ndarray:
    code = np.asarray(draws["z"]) @ STATES ** np.arange(4)
    return np.bincount(code, minlength=STATES**4) / len(code)


@pytest.fixture(scope="module")
def few() -> sy.Evaluation:
    return sy.evaluate(CHAIN, jax.random.key(2), jnp.asarray(COINS), particles=7, smoothing=True)


@pytest.mark.parametrize("bound", [None, BOUND, np.full(3, BOUND + 0.2)])
def test_the_law_of_a_draw_given_the_particles(bound: Any, few: sy.Evaluation) -> None:
    particles, draws, kept = 7, 20_000, few.kept
    assert kept is not None
    z = np.concatenate([kept.first["z"][None], kept.values["z"]])
    w = np.exp(np.concatenate([kept.first_log_weight[None], kept.log_weight]).astype(float))
    expected = np.zeros(STATES**4)
    for path in itertools.product(range(particles), repeat=4):
        probability = w[3, path[3]] / w[3].sum()
        for t in (2, 1, 0):
            back = w[t] * step_table(COINS[t])[z[t], z[t + 1, path[t + 1]]]
            probability *= back[path[t]] / back.sum()
        expected[sum(z[t, i] * STATES**t for t, i in enumerate(path))] += probability
    found = laws(few.smoothed(jax.random.key(3), draws, bound=bound))
    assert (expected > 0.02).sum() > 4
    assert (abs(found - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / draws) + 1e-12).all()


def test_the_law_of_a_draw_tends_to_the_posterior() -> None:
    size = 4000
    out = sy.evaluate(CHAIN, KEY, jnp.asarray(COINS), particles=size, smoothing=True)
    exact = np.zeros(STATES**4)
    for path in itertools.product(range(STATES), repeat=4):
        weight = START[path[0]] * (0.2 + 0.3 * path[0])
        for t, coin in enumerate(COINS):
            weight *= step_table(coin)[path[t], path[t + 1]]
        exact[sum(z * STATES**t for t, z in enumerate(path))] = weight
    np.testing.assert_allclose(out.log_z, np.log(exact.sum()), atol=0.05)
    exact /= exact.sum()
    found = laws(out.smoothed(jax.random.key(3), size, bound=BOUND))
    assert (abs(found - exact) < 4.5 * np.sqrt(2 * exact * (1 - exact) / size) + 1e-3).all()


def test_what_a_jit_returns_can_be_smoothed_outside_and_in_a_batch() -> None:
    def run(key: Any, ys: Any, slope: Any) -> Any:
        def step(q: Any, y: Any) -> Any:
            return sy.move(lambda s, z: walk(y)(s, slope * z), sy.resample(q))

        out = sy.evaluate(sy.scan(step, first, ys, keep=["z"]), key, particles=6, smoothing=True)
        return out, out.smoothed(key, 4)["z"]

    keys, slopes = jax.random.split(KEY), jnp.array([0.5, 2.0])
    out, inside = jax.jit(jax.vmap(run, (0, None, 0)))(keys, YS, slopes)
    outside = jax.vmap(lambda e, key: e.smoothed(key, 4)["z"])(out, keys)
    np.testing.assert_array_equal(inside, outside)
    with pytest.raises(sy.ArgumentError, match=r"jax\.vmap"):
        out.smoothed(KEY, 4)


def refused(q: Any, error: type[Exception], match: str, **options: Any) -> None:
    with pytest.raises(error, match=match):
        sy.evaluate(q, KEY, particles=3, smoothing=True, **options)


def test_what_backward_sampling_would_get_wrong_is_refused() -> None:
    def second_order(s: sy.State, value: Any) -> Any:
        z, before = value
        return s.sample("z", dist.Normal(z - 0.5 * before, 1.0)), z

    def pair(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0)), 0.0

    def of(step: Any, start: Any, keep: Any = ("z",)) -> Any:
        return sy.scan(lambda q, _: sy.move(step, q), start, None, length=2, keep=keep)

    refused(of(second_order, pair), sy.GrammarError, "depends on what the step before it returned")

    def with_parameter(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0)), s.sample("theta", dist.Normal(0.0, 1.0))

    def uses_parameter(s: sy.State, value: Any) -> Any:
        z, theta = value
        return s.sample("z", dist.Normal(theta * z, 1.0)), theta

    refused(of(uses_parameter, with_parameter, ["z", "theta"]), sy.AddressError, "'theta' is kept, but a step does not")
    refused(of(uses_parameter, with_parameter), sy.AddressError, r"keep=\['z', 'theta'\]")
    refused(of(walk(0.3), first, []), sy.AddressError, r"keep=\['z'\]")


def test_programs_that_are_no_filters_are_refused() -> None:
    def kernel(s: sy.State, z: Any) -> Any:
        return s.sample("z", dist.Normal(0.5 * z, 0.5))

    def model(s: sy.State, *_: Any) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0))

    def level(q: Any, _: Any) -> Any:
        return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, q))

    refused(sy.scan(level, model, None, length=2, keep=["z"]), sy.GrammarError, "density so far by a transition")
    refused(model, sy.GrammarError, "is for a filter")
    filters = sy.scan(guided, first, YS, keep=["z"])
    refused(sy.scan(guided, first, YS), sy.GrammarError, "is for a filter")
    refused(sy.scan(guided, filters, YS, keep=["z"]), sy.GrammarError, "density of the program that the filter begins")
    refused(filters, sy.ArgumentError, "vectorized", engine="universal")
    with pytest.raises(sy.ArgumentError, match="smoothing=True"):
        sy.evaluate(model, KEY, particles=3, engine="universal").smoothed(KEY, 1)


def test_a_bound_that_is_none_is_noticed() -> None:
    q = sy.scan(guided, first, YS[:2], keep=["z"])
    out = sy.evaluate(q, KEY, particles=20, smoothing=True)
    with pytest.raises(sy.ArgumentError, match="larger log density than bound"):
        out.smoothed(KEY, 50, bound=-2.0)
    inside = jax.jit(lambda e: e.smoothed(KEY, 50, bound=-2.0)["z"])(out)
    assert np.isnan(inside).any()
    with pytest.raises(sy.ArgumentError, match="one for each of 2"):
        out.smoothed(KEY, 50, bound=np.zeros(3))
