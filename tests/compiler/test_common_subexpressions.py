"""Loops compute nothing twice, and compute the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from steelyard.compiler.common_subexpressions import eliminate_common_subexpressions
from steelyard.compiler.equations import rewritten


def simplified(f: Any) -> Any:
    return rewritten(f, eliminate_common_subexpressions)


def count(f: Any, name: str, *args: Any) -> int:
    return sum(equation.primitive.name == name for equation in jax.make_jaxpr(f)(*args).jaxpr.eqns)


def test_equal_operations_are_merged_and_different_ones_are_not() -> None:
    def f(x: Any, y: Any) -> Any:
        same = jnp.exp(x + 1.0), jnp.exp(x + 1.0)
        others = jnp.exp(x + 2.0), jnp.exp(y + 1.0), jnp.exp(1.0 + x)
        return {"same": same, "others": others, "x": x}

    merged = simplified(f)
    assert count(f, "exp", 0.3, 0.4) == 5
    assert count(merged, "exp", 0.3, 0.4) == 4
    for one, other in zip(jax.tree.leaves(f(0.3, 0.4)), jax.tree.leaves(merged(0.3, 0.4)), strict=True):
        assert one == other


def test_numbers_of_another_type_are_other_numbers() -> None:
    def f(x: Any) -> Any:
        return jax.lax.convert_element_type(x, jnp.float32), jax.lax.convert_element_type(x, jnp.int32)

    out = simplified(f)(jnp.float32(2.5))
    assert [x.dtype for x in out] == [jnp.float32, jnp.int32]
    assert count(simplified(lambda x: (x * 1.0, x * -0.0, x * 0.0)), "mul", 2.0) == 3


def test_an_operation_of_which_only_a_part_was_needed_at_first() -> None:
    def f(x: Any) -> Any:
        largest, _ = jax.lax.top_k(x, 2)
        _, places = jax.lax.top_k(x, 2)
        return largest, places

    x = jnp.array([1.0, 5.0, 3.0])
    largest, places = simplified(f)(x)
    np.testing.assert_array_equal(largest, [5.0, 3.0])
    np.testing.assert_array_equal(places, [1, 2])


def test_effects_happen_as_often_as_they_are_asked_for() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        for _ in range(3):
            jax.debug.callback(lambda value: seen.append(float(value)), x)
        return x

    jax.jit(simplified(f))(2.0)
    jax.effects_barrier()
    assert seen == [2.0, 2.0, 2.0]


def test_gradients_are_those_of_the_function() -> None:
    def f(x: Any) -> Any:
        held = jax.lax.stop_gradient(jnp.sin(x))
        return jnp.sin(x) * held + jax.nn.relu(x) * jax.nn.relu(x)

    for x in (-0.7, 1.3):
        np.testing.assert_allclose(jax.grad(simplified(f))(x), jax.grad(f)(x), rtol=1e-6)


def test_a_level_of_a_loop_evaluates_its_network_once() -> None:
    """A kernel and its reverse are the same program at the same values in a Gibbs update of another block."""

    def target(s: sy.State) -> Any:
        return s.sample("a", dist.Normal(0.0, 1.0)), s.sample("b", dist.Normal(0.0, 1.0))

    def update_b(s: sy.State, value: Any) -> Any:
        return value[0], s.sample("b", dist.Normal(jnp.tanh(value[0]), 1.0))

    q = sy.algorithms.apg(target, target, [update_b], sweeps=3, remat=False)
    jaxpr = jax.make_jaxpr(lambda key: sy.evaluate(q, key, particles=4).loss)(jax.random.key(0))
    bodies = [equation.params["jaxpr"].jaxpr for equation in jaxpr.jaxpr.eqns if equation.primitive.name == "scan"]
    assert len(bodies) == 1
    assert sum(equation.primitive.name == "tanh" for equation in bodies[0].eqns) == 1
