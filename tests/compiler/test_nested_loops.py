"""Loops in loops: a step is traced once more for each loop around it, and computes the same."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

KEY, PARTICLES = jax.random.key(7), 4


def model(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(0.5, 1.0))
    s.observe("x", dist.Normal(z, 0.7), 0.3)
    return z


def nested(depth: int, calls: list[int], scale: Any = 0.8, *, resampled: bool = False) -> Any:
    """One update in a loop in a loop ..."""

    def kernel(s: sy.State, z: Any) -> Any:
        calls.append(depth)
        return s.sample("z", dist.Normal(scale * z, 1.0))

    def update(q: Any, x: Any) -> Any:
        return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(q) if resampled else q))

    def loop(depth: int) -> Callable[..., Any]:
        return update if depth == 0 else lambda q, x: sy.scan(loop(depth - 1), q, jnp.arange(2))

    return sy.scan(loop(depth - 1), sy.propose(model, model), jnp.arange(3))


def test_a_step_is_traced_once_more_for_each_loop_around_it() -> None:
    def calls_of(depth: int) -> int:
        calls: list[int] = []
        q = nested(depth, calls)
        jax.jit(lambda key: sy.evaluate(q, key, particles=PARTICLES).log_z).trace(KEY)
        return len(calls)

    # The kernel is a part of the proposal and of the target.
    assert [calls_of(depth) for depth in (1, 2, 3, 4)] == [4, 6, 8, 10]


@pytest.mark.parametrize("resampled", [False, True])
def test_loops_in_loops_are_what_they_mean(resampled: bool) -> None:
    def run(engine: Any, optimize: bool = True) -> Any:
        q = nested(3, [], resampled=resampled)
        options = {"engine": engine, "optimize": optimize, "objective": sy.objectives.elbo}
        out = sy.evaluate(q, KEY, particles=PARTICLES, **options)
        return out.log_weight, dict(out.trace), dict(out.log_density), out.loss, out.value

    for optimize in (True, False):
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
            run("vectorized", optimize),
            run("universal"),
        )


def test_gradients_of_loops_in_loops() -> None:
    def log_z(scale: Any, optimize: bool) -> Any:
        return sy.evaluate(nested(3, [], scale), KEY, particles=PARTICLES, optimize=optimize).log_z

    slopes = [jax.jit(jax.grad(log_z), static_argnums=1)(0.8, optimize) for optimize in (True, False)]
    step = 1e-2
    difference = (log_z(0.8 + step, True) - log_z(0.8 - step, True)) / (2 * step)
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-4)
    np.testing.assert_allclose(slopes[0], difference, rtol=2e-2)
