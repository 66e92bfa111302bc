"""Chains of moves under substitution: each kernel runs once, and what it is taken for does not change results."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.types import EngineName

KEY, PARTICLES = jax.random.key(6), 3
OPTIONS: dict[str, Any] = {"particles": PARTICLES, "objective": sy.objectives.forward_kl}


def model(s: sy.State) -> Any:
    y = s.sample("y", dist.Normal(0.5, 1.0))
    z = s.sample("z", dist.Normal(y, 2.0))
    s.observe("x", dist.Normal(z, 0.7), 0.3)
    return y, z


def kernels(calls: list[str]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def of_y(s: sy.State, value: Any) -> Any:
        calls.append("y")
        return s.sample("y", dist.Normal(0.5 * value[1], 1.0)), value[1]

    def of_z(s: sy.State, value: Any) -> Any:
        calls.append("z")
        return value[0], s.sample("z", dist.Normal(0.2 + value[0], 0.8))

    return of_y, of_z


def chain(length: int, calls: list[str]) -> Any:
    q: Any = sy.propose(model, model)
    for i in range(length):
        q = sy.move(kernels(calls)[i % 2], q)
    return q


def calls_of(program: Callable[[list[str]], Any]) -> int:
    calls: list[str] = []
    q = program(calls)
    jax.eval_shape(lambda key: sy.evaluate(q, key, **OPTIONS).loss, KEY)
    return len(calls)


@pytest.mark.parametrize("length", [2, 5, 9])
def test_each_kernel_of_a_chain_runs_once_more_under_substitution(length: int) -> None:
    assert calls_of(lambda calls: sy.detach(chain(length, calls))) == 2 * length


def moved_log_density(trace: Any) -> Any:
    """The densities of chain(3): a model, then y, z and y again."""
    y, z = ([trace[name], trace[sy.previous(name)]] for name in "yz")
    y.append(trace[sy.previous(sy.previous("y"))])
    return {
        sy.previous(sy.previous("y")): dist.Normal(0.5, 1.0).log_prob(y[2]),
        sy.previous("z"): dist.Normal(y[2], 2.0).log_prob(z[1]),
        "x": dist.Normal(z[1], 0.7).log_prob(0.3),
        sy.previous("y"): dist.Normal(0.5 * z[1], 1.0).log_prob(y[1]),
        "z": dist.Normal(0.2 + y[1], 0.8).log_prob(z[0]),
        "y": dist.Normal(0.5 * z[0], 1.0).log_prob(y[0]),
    }


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
@pytest.mark.parametrize("program", [lambda q: q, sy.detach, lambda q: sy.detach(sy.detach(q))])
def test_densities_are_those_written_by_hand(program: Callable[..., Any], engine: EngineName) -> None:
    out = sy.evaluate(program(chain(3, [])), KEY, particles=PARTICLES, engine=engine)
    expected = moved_log_density(out.trace)
    assert set(out.log_density) == set(expected)
    for address, value in expected.items():
        np.testing.assert_allclose(out.log_density[address], value, rtol=1e-5)


@pytest.mark.parametrize("missing", [("y",), (sy.previous("z"), "z"), (sy.previous(sy.previous("y")),)])
def test_what_is_missing_is_drawn_the_same_by_both_engines_and_at_every_attempt(missing: tuple[str, ...]) -> None:
    """With one kernel twice, whose variables are known after it ran, and with kernels that are met for the first time."""
    given = sy.evaluate(chain(3, []), KEY, particles=PARTICLES).trace
    given = {a: v for a, v in given.items() if a not in missing}
    of_y, of_z = kernels([])
    once = sy.move(of_y, sy.move(of_z, sy.move(of_y, sy.propose(model, model))))
    results = [
        sy.evaluate(q, KEY, particles=PARTICLES, given=given, engine=engine)
        for q in (chain(3, []), once)
        for engine in ("vectorized", "universal")
    ]
    for out in results:
        for address in given:
            np.testing.assert_array_equal(out.trace[address], given[address])
        for address in missing:
            np.testing.assert_allclose(out.trace[address], results[0].trace[address], rtol=1e-5)
        np.testing.assert_allclose(out.log_weight, results[0].log_weight, rtol=1e-5)


def test_a_kernel_that_does_something_else_than_before() -> None:
    """Which variables it samples depends on what it is called with; it was met with other ones first."""

    def first(s: sy.State) -> Any:
        return [s.sample("a", dist.Normal(0.0, 1.0)), s.sample("b", dist.Normal(1.0, 1.0))]

    def kernel(s: sy.State, values: Any) -> Any:
        if len(values) == 2:
            return [s.sample("a", dist.Normal(0.3 * values[0] + values[1], 1.0))]
        return [values[0], s.sample("b", dist.Normal(0.7 * values[0], 2.0))]

    q = sy.move(kernel, sy.move(kernel, sy.move(kernel, first)))
    plain, detached = (sy.evaluate(p, KEY, particles=PARTICLES) for p in (q, sy.detach(q)))
    assert set(plain.log_density) == set(detached.log_density) and len(plain.log_density) == 5
    for address, value in plain.log_density.items():
        np.testing.assert_allclose(detached.log_density[address], value, rtol=1e-5)


def test_a_variable_that_only_some_particles_have() -> None:
    def first(s: sy.State) -> Any:
        b = s.sample("b", dist.Normal(0.2, 1.0))
        with s.when(b > 0):
            a = s.sample("a", dist.Normal(b, 1.0))
        return a, b

    def kernel(s: sy.State, value: Any) -> Any:
        a, b = value
        with s.when(b > 0):
            a = s.sample("a", dist.Normal(0.3 * a - b, 1.0))
        return a, b

    for q in (sy.move(kernel, first), sy.move(kernel, sy.move(kernel, first))):
        plain, detached = (sy.evaluate(p, KEY, particles=20) for p in (q, sy.detach(q)))
        assert set(plain.log_density) == set(detached.log_density)
        for address in plain.log_density:
            present = np.asarray(plain.trace.present(address))
            np.testing.assert_array_equal(detached.trace.present(address), present)
            densities = (np.where(present, out.log_density[address], 0.0) for out in (plain, detached))
            np.testing.assert_allclose(*densities, rtol=1e-5, err_msg=str(address))
