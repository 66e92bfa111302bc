"""Chunks of particles: the same results and gradients, in less memory."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.engines import progress

X = jax.random.normal(jax.random.key(1), (400, 32))


def model(s: sy.State, x: Any) -> Any:
    w = s.sample("w", dist.Normal(jnp.zeros(32), 1.0))
    s.observe("x", dist.Normal(jnp.tanh(0.1 * x @ w), 0.7), jnp.ones(x.shape[0]))
    return w, x


def kernel(s: sy.State, value: Any) -> Any:
    return s.sample("w", dist.Normal(0.9 * value[0], 0.3)), value[1]


def network(s: sy.State, location: Any, x: Any) -> None:
    w = s.sample("w", dist.Normal(jnp.full(32, location), 1.0))
    s.observe("x", dist.Normal(x.T @ jnp.tanh(0.1 * x @ w), 20.0), jnp.ones(32))


def bound(location: Any, key: Any, particles: int, chunk: int | None) -> Any:
    q = sy.propose(network, network, objective=sy.objectives.iwae)
    return sy.evaluate(q, key, location, X, particles=particles, chunk=chunk).loss


def temporaries(function: Any, particles: int, chunk: int | None) -> int:
    run = jax.jit(lambda location, key: function(location, key, particles, chunk))
    return run.lower(0.1, jax.random.key(0)).compile().memory_analysis().temp_size_in_bytes


def test_the_particles_are_the_same() -> None:
    """The number of particles is no multiple of the chunk, and one program after the other resamples."""
    q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(sy.propose(model, model))))
    run = jax.jit(lambda key, x, chunk: sy.evaluate(q, key, x, particles=1001, chunk=chunk), static_argnums=2)
    whole, parts = run(jax.random.key(0), X, None), run(jax.random.key(0), X, 100)
    np.testing.assert_allclose(whole.log_weight, parts.log_weight, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(whole.trace["w"], parts.trace["w"], rtol=1e-4, atol=1e-5)


def test_gradients_are_the_same() -> None:
    whole, parts = (jax.grad(bound)(0.1, jax.random.key(0), 101, chunk) for chunk in (None, 20))
    assert abs(whole) > 1e-3
    np.testing.assert_allclose(parts, whole, rtol=1e-3)


def test_memory_is_bounded_also_for_gradients() -> None:
    for function in (bound, jax.grad(bound)):
        assert temporaries(function, 20_000, 500) < temporaries(function, 20_000, None) / 4


def coin(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.factor("y", z)
    return z


def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of a program on all particles is counted, chunk by chunk."""
    monkeypatch.setattr(progress, "LINE", 0.0)
    q = sy.move(lambda s, z: s.sample("z", dist.Normal(z, 1.0)), sy.resample(coin))
    plain, shown = (sy.evaluate(q, jax.random.key(0), particles=6, chunk=3, progress=p) for p in (False, True))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"run {run}: {done} of 6 particles" for run in (1, 2) for done in (0, 3)]
    np.testing.assert_allclose(shown.trace["z"], plain.trace["z"], rtol=1e-5)
    np.testing.assert_array_equal(shown.ancestors, plain.ancestors)


def test_progress_ends_at_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not begun is left out, also of a last chunk that is smaller."""
    begun: list[int] = []

    def interrupt(run: int, before: int) -> None:
        begun.append(before)
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    @contextmanager
    def watching(particles: int) -> Iterator[progress.Watch]:
        yield progress.Watch(particles, interrupt)

    monkeypatch.setattr("steelyard.engines.evaluate.watching", watching)
    # A process that was started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            sy.evaluate(coin, jax.random.key(0), particles=11, chunk=3, progress=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) == 2


@pytest.mark.usefixtures("as_users_run_it")
def test_progress_where_it_cannot_be_shown() -> None:
    key = jax.random.key(0)
    with pytest.raises(sy.ArgumentError, match="progress is shown chunk by chunk"):
        sy.evaluate(coin, key, particles=7, progress=True)
    with pytest.raises(sy.ArgumentError, match="progress can be shown outside of jit"):
        jax.jit(lambda key: sy.evaluate(coin, key, particles=7, chunk=3, progress=True))(key)
