"""Loops in loops: a step is traced twice, however many loops are around it, and computes the same."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler.previews import Preview, Previews
from steelyard.semantics.scans import Step

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


def lowered(calls: list[int], depth: int, *, resampled: bool, **options: Any) -> Any:
    q = nested(depth, calls, resampled=resampled)
    return jax.jit(lambda key: sy.evaluate(q, key, particles=PARTICLES, **options).log_weight).lower(KEY)


@pytest.mark.parametrize("resampled", [False, True])
def test_a_step_is_traced_twice_at_any_depth(resampled: bool) -> None:
    for depth in (1, 2, 4):
        calls: list[int] = []
        lowered(calls, depth, resampled=resampled, objective=sy.objectives.elbo)
        # The kernel is a part of the proposal and of the target.
        assert len(calls) == 4


def test_two_loops_in_one_step_have_previews_of_their_own() -> None:
    calls: list[str] = []

    def update(name: str, resampled: bool) -> Callable[..., Any]:
        def kernel(s: sy.State, z: Any) -> Any:
            calls.append(name)
            return s.sample("z", dist.Normal(0.5 * z, 1.0))

        def step(q: Any, x: Any) -> Any:
            return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(q) if resampled else q))

        return step

    def both(q: Any, x: Any) -> Any:
        return sy.scan(update("second", True), sy.scan(update("first", False), q, jnp.arange(2)), jnp.arange(2))

    def run(key: Any, engine: Any = "vectorized") -> Any:
        q = sy.scan(both, sy.propose(model, model), jnp.arange(3))
        return sy.evaluate(q, key, particles=PARTICLES, engine=engine).log_weight

    compiled = jax.jit(run).lower(KEY)
    assert sorted(calls) == ["first"] * 4 + ["second"] * 4
    np.testing.assert_allclose(compiled.compile()(KEY), run(KEY, "universal"), rtol=1e-4, atol=1e-5)


WRONG: dict[str, Callable[[Preview], Preview]] = {
    "keys": lambda preview: preview._replace(keys=preview.keys + 1),
    "ancestors": lambda preview: preview._replace(after=preview.after._replace(ancestors=None)),
    "repeats": lambda preview: preview._replace(repeats=preview.repeats._replace(first=(0,) * 6)),
    "facts": lambda preview: preview._replace(after=with_facts(preview.after, fixed=True)),
}


def with_facts(step: Step, **facts: Any) -> Step:
    e = step.evaluation
    return step._replace(evaluation=replace(e, facts=replace(e.facts, **facts)))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_preview_that_is_wrong_is_found_out(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, remember, calls = lowered([], 2, resampled=True).compile()(KEY), Previews.remember, list[int]()

    def remember_wrongly(self: Previews, mark: Any, preview: Preview) -> Preview:
        remember(self, mark, WRONG[wrong](preview))
        return preview

    monkeypatch.setattr(Previews, "remember", remember_wrongly)
    retraced = lowered(calls, 2, resampled=True)
    assert len(calls) > 4
    np.testing.assert_array_equal(retraced.compile()(KEY), right)


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

    step = 1e-4
    with jax.enable_x64(True):
        slopes = [jax.jit(jax.grad(log_z), static_argnums=1)(0.8, optimize) for optimize in (True, False)]
        difference = (log_z(0.8 + step, True) - log_z(0.8 - step, True)) / (2 * step)
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-9)
    np.testing.assert_allclose(slopes[0], difference, rtol=1e-4)
