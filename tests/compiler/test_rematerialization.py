"""What loops keep for their gradients: the same gradients, in less memory, without another product."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler import rematerialization as residuals

WIDTH, STEPS = 40, 6


def loss(weights: Any, particles: int, *, unroll: int = 1, steps: int = STEPS, remat: bool = False) -> Any:
    """A network in the kernels of a sampler: products of particles with weights, and functions of each number."""
    inner, outer = weights

    def model(s: sy.State) -> Any:
        x = s.sample("x", dist.Normal(0.0, 1.0))
        s.factor("tilt", -((x - 1.0) ** 2))
        return x

    def kernel(s: sy.State, x: Any) -> Any:
        return s.sample("x", dist.Normal(jnp.tanh(jnp.exp(-jnp.square(x * inner)) @ outer), 0.7))

    def level(q: Any, _: Any) -> Any:
        proposal = sy.move(kernel, sy.resample(q))
        return sy.propose(sy.extend(model, sy.prev(kernel)), proposal, objective=sy.objectives.elbo)

    q = sy.scan(level, model, None, length=steps, unroll=unroll, remat=remat)
    return sy.evaluate(q, jax.random.key(0), particles=particles).loss


WEIGHTS = jnp.linspace(-1.0, 1.3, WIDTH), jnp.linspace(0.1, -0.06, WIDTH)


@pytest.mark.parametrize("large", [1, 200, 10**9])
def test_gradients_do_not_depend_on_what_is_kept(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = jax.grad(loss)(WEIGHTS, 30, unroll=STEPS)
    assert all(bool(jnp.all(x != 0)) for x in expected)
    monkeypatch.setattr(residuals, "LARGE", large)
    for transformed in (jax.grad, jax.jacfwd):
        for mine, other in zip(transformed(loss)(WEIGHTS, 30), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=2e-3, atol=1e-3)


def compiled(particles: int, monkeypatch: pytest.MonkeyPatch, large: int) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(residuals, "LARGE", large)
        return jax.jit(lambda weights: jax.grad(loss)(weights, particles)).lower(WEIGHTS).compile()


def test_large_arrays_are_computed_again_and_products_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    little, everything = (compiled(20_000, monkeypatch, large) for large in (residuals.LARGE, 10**9))
    memory = [x.memory_analysis().temp_size_in_bytes for x in (little, everything)]
    assert memory[0] < 0.6 * memory[1]
    products = [x.as_text().count(" dot(") for x in (little, everything)]
    assert products[0] == products[1] > 0


def test_small_arrays_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    exponentials = [compiled(30, monkeypatch, n).as_text().count(" exponential(") for n in (residuals.LARGE, 10**9, 1)]
    assert 0 < exponentials[0] == exponentials[1] < exponentials[2]


def test_steps_that_are_computed_again_need_no_more_memory_for_more_of_them() -> None:
    def memory(steps: int, remat: bool) -> int:
        gradient = jax.jit(lambda weights: jax.grad(loss)(weights, 2_000, steps=steps, remat=remat))
        return gradient.lower(WEIGHTS).compile().memory_analysis().temp_size_in_bytes

    # What grows is what goes from step to step.
    assert memory(30, True) < 1.5 * memory(5, True)
    assert memory(30, True) < 0.7 * memory(30, False)
    expected = jax.grad(loss)(WEIGHTS, 30)
    for mine, other in zip(jax.grad(loss)(WEIGHTS, 30, remat=True), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
