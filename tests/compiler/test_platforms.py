"""What suits a CPU only is in programs for CPUs only, wherever they are traced; and the others compute the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler import segments
from steelyard.compiler.keys import FEW
from tests.compiler.test_passes import WEIGHTS, loss

APART, REMAINDER, BARRIER = 'inlineable = "false"', "stablehlo.remainder", "stablehlo.optimization_barrier"


def exported(f: Any, *args: Any) -> dict[str, jax.export.Exported]:
    """Programs for two kinds of processors; a CPU runs both."""
    unchecked = [jax.export.DisabledSafetyCheck.platform()]
    return {p: jax.export.export(jax.jit(f), platforms=[p], disabled_checks=unchecked)(*args) for p in ("cpu", "cuda")}


def counts(programs: dict[str, jax.export.Exported], words: str) -> list[int]:
    return [programs[p].mlir_module().count(words) for p in ("cpu", "cuda")]


def many(key: Any) -> Any:
    """More draws than are computed each where it is used, of both kinds."""

    def model(s: sy.State) -> Any:
        return [s.sample(f"z{i}", (dist.Normal, dist.Uniform)[i % 2](0.0, 1.0 + i)) for i in range(FEW + 2)]

    return jnp.stack(sy.evaluate(model, key, particles=3).value)


def test_many_draws_are_computed_apart_on_a_cpu() -> None:
    programs = exported(many, jax.random.key(0))
    assert counts(programs, APART)[0] > 0 and counts(programs, APART)[1] == 0
    assert counts(programs, REMAINDER)[0] > 0 and counts(programs, REMAINDER)[1] == 0
    for p in programs:
        np.testing.assert_allclose(programs[p].call(jax.random.key(1)), many(jax.random.key(1)), rtol=1e-6)


def test_products_are_kept_in_their_form_on_a_cpu() -> None:
    """One barrier is for all processors: that of the key, which every draw uses."""

    def slope(weights: Any) -> Any:
        return jax.grad(loss)(weights, ["products"])

    programs = exported(slope, WEIGHTS)
    assert counts(programs, BARRIER)[0] > 1 and counts(programs, BARRIER)[1] == 1
    for p in programs:
        np.testing.assert_allclose(programs[p].call(WEIGHTS), jax.grad(loss)(WEIGHTS, False), rtol=1e-4, atol=1e-6)


def test_long_programs_are_cut_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MANY", 10)
    monkeypatch.setattr(segments, "SEGMENT", 4)

    def sines(x: Any) -> Any:
        for _ in range(12):
            x = jnp.sin(x * x)
        return x

    cut = segments.in_segments(jax.make_jaxpr(sines)(1.0))
    programs = exported(jax.value_and_grad(lambda x: cut(x)[0]), 1.0)
    assert counts(programs, APART)[0] >= 6 and counts(programs, APART)[1] == 0
    for p in programs:
        np.testing.assert_allclose(programs[p].call(0.7), jax.value_and_grad(sines)(0.7), rtol=1e-5)
