"""The history that a scan keeps goes with the particles through every combinator around it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

KEY = jax.random.key(3)
DATA = jnp.array([0.3, 1.1, -0.5])


def first(s: sy.State) -> Any:
    s.factor("y", 0.0)
    return s.sample("z", dist.Normal(0.0, 1.0))


def step(q: Any, y: Any) -> Any:
    def transition(s: sy.State, z: Any) -> Any:
        z = s.sample("z", dist.Normal(0.9 * z, 1.0))
        s.factor("y", -0.5 * (y - z) ** 2)
        return z

    return sy.move(transition, sy.resample(q))


def head(s: sy.State) -> Any:
    return s.sample("head", dist.Normal(0.0, 1.0))


def tail(s: sy.State, z: Any) -> Any:
    s.factor("w", 0.3 * z)
    return s.sample("tail", dist.Normal(z, 1.0))


FILTER = sy.scan(step, first, DATA, keep=["z"])


@pytest.fixture(params=("vectorized", "universal"))
def run(request: pytest.FixtureRequest) -> Any:
    return lambda q: sy.evaluate(q, KEY, particles=20, engine=request.param)


def last_of(out: sy.Evaluation, address: str) -> Any:
    return np.asarray(out.trajectories()[address])[:, -1]


def test_after_another_program(run: Any) -> None:
    q = sy.scan(step, lambda s, _: first(s), DATA, keep=["z"])
    out = run(sy.compose(q, head))
    assert out.trajectories()["z"].shape == (20, 4)
    np.testing.assert_array_equal(last_of(out, "z"), out.trace["z"])


def test_before_another_program_that_resamples(run: Any) -> None:
    out = run(sy.resample(sy.compose(tail, FILTER)))
    np.testing.assert_array_equal(last_of(out, "z"), out.trace["z"])


def test_in_both_parts_of_a_compose(run: Any) -> None:
    other = sy.rename(sy.scan(step, lambda s, _: first(s), DATA[:2], keep=["z"]), {"z": "z2", "y": "y2"})
    out = run(sy.compose(other, FILTER))
    histories = out.trajectories()
    assert {a: x.shape for a, x in histories.items()} == {"z": (20, 4), "z2": (20, 3)}
    for a in histories:
        np.testing.assert_array_equal(last_of(out, a), out.trace[a])


def test_under_another_address(run: Any) -> None:
    out = run(sy.rename(FILTER, {"z": "state"}))
    assert list(out.trajectories()) == ["state"]
    np.testing.assert_array_equal(last_of(out, "state"), out.trace["state"])


def test_of_a_variable_that_is_moved_afterwards(run: Any) -> None:
    def kernel(s: sy.State, z: Any) -> Any:
        return s.sample("z", dist.Normal(z, 0.1))

    out = run(sy.move(kernel, FILTER))
    assert list(out.trajectories()) == ["z′"]
    np.testing.assert_array_equal(last_of(out, "z′"), out.trace["z′"])


def test_of_no_steps(run: Any) -> None:
    out = run(sy.scan(step, first, DATA[:0], keep=["z"]))
    assert out.trajectories()["z"].shape == (20, 1)
    np.testing.assert_array_equal(last_of(out, "z"), out.trace["z"])


def test_of_a_scan_that_goes_on_where_another_ended(run: Any) -> None:
    both = sy.scan(step, sy.scan(step, first, DATA[:1], keep=["z"]), DATA[1:], keep=["z"])
    np.testing.assert_array_equal(run(both).trajectories()["z"], run(FILTER).trajectories()["z"])


def test_in_a_batch() -> None:
    q = sy.compose(tail, sy.scan(step, first, DATA[:0], keep=["z"]))
    out = jax.vmap(lambda key: sy.evaluate(q, key, particles=5))(jax.random.split(KEY, 2))
    assert out.trajectories()["z"].shape == (2, 5, 1)
