"""Densities that wait for each other: the same numbers, in few calls."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.distributions.densities import log_prob, log_prob_anywhere
from steelyard.engines import deferred
from steelyard.engines.compiled import Taking
from steelyard.engines.deferred import BLOCK, Deferred, DeferredDensities


def test_calls_grow_with_blocks_of_particles_not_with_particles(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    before = deferred._densities
    monkeypatch.setattr(deferred, "_densities", lambda *args: calls.append(args[1]) or before(*args))

    def program(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        if z > 0.3:
            z = s.sample("more", dist.Normal(z, 0.5))
        s.observe("x", dist.Normal(z, 2.0), 0.7)

    out = sy.evaluate(program, jax.random.key(0), particles=BLOCK + 6, engine="universal")
    # Constants become arrays of NumPy, and those of JAX stay: two kinds, and a third for what is observed.
    assert len(calls) <= 2 + 2 + 2
    calls.clear()
    sy.evaluate(program, jax.random.key(0), particles=3, engine="universal")
    assert len(calls) <= 3
    z, more = out.trace["z"], out.trace["more"]
    there = out.trace.present("more")
    for l in range(BLOCK + 6):
        last = more[l] if there[l] else z[l]
        assert out.log_density["z"][l] == pytest.approx(float(dist.Normal(0.0, 1.0).log_prob(z[l])), rel=1e-5)
        assert out.log_density["x"][l] == pytest.approx(float(dist.Normal(last, 2.0).log_prob(0.7)), rel=1e-5)
        expected = float(dist.Normal(z[l], 0.5).log_prob(more[l])) if there[l] else 0.0
        assert out.log_density["more"][l] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_results_do_not_depend_on_when_they_are_asked_for() -> None:
    density = DeferredDensities(Taking())
    first = [density(log_prob, dist.Normal(0.1 * i, 1.0), jnp.asarray(0.5)) for i in range(3)]
    other = density(log_prob, dist.Gamma(2.0, 1.5), jnp.asarray(0.5))
    assert float(first[1]) == pytest.approx(float(dist.Normal(0.1, 1.0).log_prob(0.5)), rel=1e-6)
    later = [density(log_prob, dist.Normal(0.1 * i, 1.0), jnp.asarray(0.5)) for i in range(3, 3 + BLOCK)]
    for i, x in enumerate([*first, *later]):
        assert float(x) == pytest.approx(float(dist.Normal(0.1 * i, 1.0).log_prob(0.5)), rel=1e-5)
    assert float(other) == pytest.approx(float(dist.Gamma(2.0, 1.5).log_prob(0.5)), rel=1e-6)


def test_what_is_computed_with_them_waits_too() -> None:
    asked: list[int] = []
    x = Deferred(lambda: asked.append(1) or np.float32(-2.0))
    total = (x + x * 3.0 + 0.5) * 2.0
    assert asked == []
    assert float(total) == -15.0


def test_kinds_that_differ_do_not_meet() -> None:
    """Numbers, arrays of either library, weak types, shapes and values outside of the support."""
    density = DeferredDensities(Taking())
    cases: list[Any] = [
        (dist.Normal(0.0, 1.0), 0.5),
        (dist.Normal(0.0, 1.0), 1.5),
        (dist.Normal(0.0, 1.0), np.float32(0.5)),
        (dist.Normal(jnp.asarray(0.0), 1.0), jnp.exp(0.5)),
        (dist.Normal(jnp.zeros(2), 1.0), jnp.array([0.5, 2.0])),
        (dist.Normal(jnp.zeros(2), 1.0), 0.5),
        (dist.Uniform(0.0, 1.0), 2.0),
        (dist.Bernoulli(0.3), True),
        (dist.Bernoulli(0.3), 1),
        (dist.Poisson(jnp.asarray(2.0)), jnp.asarray(3)),
    ]
    waiting = [density(log_prob_anywhere, d, value) for d, value in cases]
    expected = [float(log_prob_anywhere(d, value)) for d, value in cases]
    np.testing.assert_allclose([float(x) for x in waiting], expected, rtol=1e-6)


def test_a_distribution_that_the_program_changes_is_taken_apart_again() -> None:
    def program(s: sy.State) -> None:
        d: Any = dist.Normal(0.0, 1.0)
        s.sample("a", d)
        d.loc = 100.0
        s.sample("b", d)
        d.scale = 0.5
        s.observe("c", d, 99.0)

    out = sy.evaluate(program, jax.random.key(0), particles=2, engine="universal")
    for l in range(2):
        b = float(out.trace["b"][l])
        assert b > 50
        assert out.log_density["b"][l] == pytest.approx(float(dist.Normal(100.0, 1.0).log_prob(b)), rel=1e-5)
        assert out.log_density["c"][l] == pytest.approx(float(dist.Normal(100.0, 0.5).log_prob(99.0)), rel=1e-5)


@pytest.mark.parametrize("x64", [False, True])
def test_scales_powers_and_zeros_are_as_with_the_other_engine(x64: bool) -> None:
    def model(s: sy.State) -> Any:
        z = s.sample("z", dist.Uniform(-1.0, 1.0))
        s.observe("x", dist.Normal(z, 1.0), 0.4, scale=3.0)
        s.observe("y", dist.Uniform(-1.0, z), 0.0)
        return z

    def guide(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0))

    with jax.enable_x64(x64):
        for power in (1.0, jnp.asarray(0.5), 0.0):
            q = sy.propose(sy.temper(model, power), guide)
            one, other = (
                sy.evaluate(q, jax.random.key(1), particles=5, engine=engine)  # pyright: ignore[reportArgumentType]
                for engine in ("universal", "vectorized")
            )
            assert np.isneginf(np.asarray(one.log_weight, float)).any()
            np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-4 if not x64 else 1e-6)
