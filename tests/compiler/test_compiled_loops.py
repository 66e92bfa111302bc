"""Outside of `jit` loops are compiled once, see what was changed meanwhile, and keep nothing alive."""

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler import loops
from steelyard.compiler.loops import with_compiled_loops
from steelyard.compiler.passes import EVERY

KEY, PARTICLES = jax.random.key(5), 4


def walk(scales: Any, ys: Any = (0.0, 1.0, 2.0)) -> Any:
    """A filter whose steps close over their scales."""

    def first(s: sy.State) -> Any:
        x = s.sample("x", dist.Normal(0.0, 1.0))
        s.factor("y", 0.0)
        return x

    def step(q: Any, y: Any) -> Any:
        def transition(s: sy.State, x: Any) -> Any:
            x = s.sample("x", dist.Normal(0.9 * x, jnp.max(jnp.asarray(scales))))
            s.observe("y", dist.Normal(x, 1.0), y)
            return x

        return sy.move(transition, sy.resample(q))

    return sy.scan(step, first, jnp.array(ys), keep=["x"])


def rates(s: sy.State, a: Any, name: str) -> Any:
    rate = s.sample(name, dist.Gamma(a, 1.0))
    s.observe("y", dist.Exponential(rate), 0.7)
    return rate


def run(q: Any, *args: Any, **options: Any) -> Any:
    out = sy.evaluate(q, KEY, *args, particles=PARTICLES, **options)
    return out.log_weight, dict(out.trace), dict(out.log_density), out.value


def assert_same(x: Any, y: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), x, y)


def compilations(caplog: pytest.LogCaptureFixture, function: Callable[[], Any]) -> int:
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
        function()
    return sum("Compiling" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("program", "args"), [(lambda: walk(0.5), ()), (lambda: rates, (2.5, "rate"))])
def test_a_program_is_compiled_once(program: Any, args: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Also where it is built anew. Nor does it differ from what is compiled as a whole, or with every pass off."""
    assert compilations(caplog, lambda: run(program(), *args)) > 0
    assert compilations(caplog, lambda: run(program(), *args)) == 0
    assert_same(run(program(), *args), jax.jit(lambda: run(program(), *args))())
    assert_same(run(program(), *args), run(program(), *args, optimize=EVERY - {"loops"}))


def test_what_was_changed_is_seen() -> None:
    scales = np.array([0.5, 0.4])
    q = walk(scales)
    before = run(q)
    scales[1] = 2.0
    assert_same(run(q), run(q, optimize=False))
    assert not np.allclose(run(q)[0], before[0])
    # A number is a part of the equations, an array is an argument of them.
    for other in (0.5, 2.0, 2, jnp.array(3.0), (3.0, 0.2)):
        assert_same(run(walk(other)), run(walk(other), optimize=False))
    # Other arguments, other types.
    for a in (2.5, 3, jnp.array(0.4), np.float32(1.5)):
        for name in ("rate", "speed"):
            assert_same(run(rates, a, name), run(rates, a, name, optimize=False))


def test_nothing_is_kept_alive() -> None:
    class Table:
        """Something large that a program closes over."""

        def __init__(self) -> None:
            self.scales = jnp.linspace(0.5, 1.5, 7)

    table = Table()
    array, watched = weakref.ref(table.scales), weakref.ref(table)
    run(walk(table.scales))

    def model(s: sy.State) -> Any:
        return s.sample("g", dist.Gamma(table.scales, 1.0).to_event(1))

    program = weakref.ref(model)
    run(model)
    del table, model
    gc.collect()
    assert watched() is None and array() is None and program() is None


def test_gradients_and_maps_outside_of_jit_are_as_they_were() -> None:
    def log_z(scale: Any) -> Any:
        return sy.evaluate(walk(scale), KEY, particles=PARTICLES).log_z

    for transformed, scale in ((jax.grad(log_z), jnp.array(0.5)), (jax.vmap(log_z), jnp.array([0.5, 2.0]))):
        assert_same(transformed(scale), jax.jit(transformed)(scale))


def test_a_weight_that_is_nan_is_still_found() -> None:
    with pytest.raises(sy.WeightError, match="NaN"):
        run(walk(0.5, (0.0, jnp.nan, 1.0)))


def test_a_program_that_branches_is_still_explained() -> None:
    def model(s: sy.State) -> Any:
        rate = s.sample("rate", dist.Gamma(2.0, 1.0))
        return rate if rate > 1 else -rate

    with pytest.raises(sy.ArgumentError, match="branches on what it sampled"):
        run(model)


def equations(f: Callable[[Any], Any], x: Any) -> Any:
    return jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: f(x), x))(x)


def test_only_the_same_is_taken_for_the_same() -> None:
    """Numbers that are equal are not always the same, nor are arrays of another type."""
    functions = [
        lambda x: x * 0.0,
        lambda x: x * -0.0,
        lambda x: x + 1.0,
        lambda x: jnp.where(x > 0, x, 1.0),
        lambda x: jnp.sum(x, keepdims=True) + jnp.zeros_like(x),
        lambda x: jnp.cumsum(x),
        lambda x: jnp.cumsum(x[::-1]),
    ]
    for x in (jnp.array([-1.0, 2.0]), jnp.array([3.0, -2.0, 5.0])):
        for f in functions:
            closed = equations(f, x)
            (ours,) = with_compiled_loops(closed)(x)  # pyright: ignore[reportOptionalCall]
            expected = jax.lax.fori_loop(0, 3, lambda i, x: f(x), x)  # noqa: B023
            np.testing.assert_array_equal(ours, expected)
            np.testing.assert_array_equal(np.signbit(ours), np.signbit(expected))


def test_callbacks_of_the_user_are_called_each_time() -> None:
    def through(offset: float) -> Any:
        x = jnp.array(1.0)
        return equations(lambda x: jax.pure_callback(lambda x: x + np.float32(offset), x, x), x), x

    for offset in (1.0, 2.0):
        closed, x = through(offset)
        compiled = with_compiled_loops(closed)
        assert compiled is not None and compiled(x)[0] == 1 + 3 * offset


def test_there_is_an_end_to_what_is_kept() -> None:
    assert loops._compiled.cache_info().maxsize == loops.KEPT
