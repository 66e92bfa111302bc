"""Products of a shared matrix: the same values and derivatives, of every order and under every transformation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler.equations import rewritten
from steelyard.compiler.products import MOST_ROWS, with_fast_gradients

# Which axis of the particles' array and of the matrix is summed over, and which of the two comes first.
FORMS = {
    "x @ W": lambda x, w: x @ w,
    "x @ W.T": lambda x, w: jax.lax.dot_general(x, w.T, (((1,), (1,)), ((), ()))),
    "W @ x.T": lambda x, w: jax.lax.dot_general(w.T, x, (((1,), (1,)), ((), ()))).T,
    "x.T, W": lambda x, w: jax.lax.dot_general(x.T, w, (((0,), (0,)), ((), ()))),
    "W, x.T": lambda x, w: jax.lax.dot_general(w, x.T, (((0,), (0,)), ((), ()))).T,
}
# Rows, inputs and outputs: few inputs and many, as many of one as of another, one of each.
CASES = [
    *((form, shape) for form in FORMS for shape in ((7, 3, 20), (7, 20, 3))),
    *(("W @ x.T", shape) for shape in ((4, 4, 4), (3, 3, 11), (11, 3, 11), (1, 2, 5), (5, 1, 1), (6, 9, 1))),
]


def fast(f: Any) -> Any:
    """f(x, w), where x is the particles'."""
    return rewritten(f, with_fast_gradients(own=1))


def arrays(rows: int, inputs: int, outputs: int) -> tuple[Any, Any]:
    keys = jax.random.split(jax.random.key(rows + 100 * inputs))
    return jax.random.normal(keys[0], (rows, inputs)), jax.random.normal(keys[1], (inputs, outputs))


def calls(f: Any, *args: Any) -> int:
    equations = jax.make_jaxpr(fast(f))(*args).jaxpr.eqns
    return sum(equation.primitive.name == "custom_jvp_call" for equation in equations)


def curved(product: Any) -> Any:
    """A scalar function of both, whose second derivatives do not vanish."""

    def f(x: Any, w: Any) -> Any:
        y = jnp.tanh(product(x, w))
        return jnp.sum(y * jnp.cos(jnp.arange(y.size)).reshape(y.shape))

    return f


@pytest.mark.parametrize(("form", "shape"), CASES)
def test_values_and_derivatives_are_those_of_the_product(form: str, shape: tuple[int, int, int]) -> None:
    x, w = arrays(*shape)
    f = curved(FORMS[form])
    g = fast(f)
    assert calls(f, x, w) == 1
    np.testing.assert_allclose(g(x, w), f(x, w), rtol=1e-6)
    dx, dw = jnp.sin(3 * x), jnp.cos(2 * w)
    for transformed in (
        lambda h: jax.grad(h, argnums=(0, 1))(x, w),
        lambda h: jax.grad(h, argnums=1)(x, w),
        lambda h: jax.jvp(h, (x, w), (dx, dw)),
        lambda h: jax.jvp(lambda w: h(x, w), (w,), (dw,)),
        lambda h: jax.jvp(jax.grad(h, argnums=(0, 1)), (x, w), (dx, dw)),
        lambda h: jax.jit(jax.grad(lambda w: jnp.sum(jax.grad(h, argnums=(0, 1))(x, w)[0] ** 2)))(w),
    ):
        for expected, found in zip(jax.tree.leaves(transformed(f)), jax.tree.leaves(transformed(g)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(7, 3, 20), (7, 20, 3), (3, 3, 3)])
@pytest.mark.parametrize("axes", [(0, None), (0, 0), (None, 0)])
def test_under_vmap_the_matrix_may_be_shared_or_not(axes: tuple[Any, Any], shape: tuple[int, int, int]) -> None:
    x, w = arrays(*shape)
    args = tuple(a if axis is None else jnp.stack([a, -0.5 * a, 2 * a]) for a, axis in zip((x, w), axes, strict=True))

    def total(h: Any) -> Any:
        return lambda x, w: jax.vmap(h, axes)(x, w).sum()

    f = curved(FORMS["W @ x.T"])
    for transform in (jax.grad, lambda h, argnums: jax.jit(jax.grad(h, argnums))):
        expected, found = (transform(total(h), argnums=(0, 1))(*args) for h in (f, fast(f)))
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-6)


def test_what_is_not_finite_in_one_batch_stays_there() -> None:
    x, w = arrays(5, 2, 9)
    xs = jnp.stack([x, x.at[0, 0].set(jnp.nan), x.at[1, 1].set(jnp.inf)])
    gradients = jax.vmap(jax.grad(fast(lambda x, w: jnp.sum(x @ w)), argnums=1), (0, None))(xs, w)
    np.testing.assert_allclose(gradients[0], jnp.broadcast_to(x.sum(0)[:, None], w.shape), rtol=1e-6)
    finite = jnp.isfinite(xs.sum(1, keepdims=True)).swapaxes(1, 2)
    np.testing.assert_array_equal(jnp.isfinite(gradients), jnp.broadcast_to(finite, gradients.shape))


def test_other_products_are_left_alone() -> None:
    x, w = arrays(6, 3, 4)
    assert calls(lambda x, w: x @ w, x, w) == 1
    assert calls(lambda x, w: x @ x.T, x, w) == 0
    assert calls(lambda x, w: w.T @ w, x, w) == 0
    assert calls(lambda x, w: x @ w[:, 0], x, w) == 0
    assert calls(lambda x, w: jnp.einsum("pi,io->", x, w), x, w) == 0
    assert calls(lambda x, w: jnp.einsum("bpi,io->bpo", x[None], w), x, w) == 0
    assert calls(lambda x, w: jnp.einsum("pi,pi->p", x, w[:, :3].repeat(2, 0)), x, w) == 0
    assert calls(lambda x, w: x @ w, x.astype(int), w.astype(int)) == 0
    assert calls(lambda x, w: jax.lax.dot(x, w, preferred_element_type=jnp.float32), *map(jnp.bfloat16, (x, w))) == 0
    assert calls(lambda x, w: x @ w, jnp.ones((MOST_ROWS, 3)), w) == 1
    assert calls(lambda x, w: x @ w, jnp.ones((MOST_ROWS + 1, 3)), w) == 0


def test_what_is_computed_from_particles_is_theirs() -> None:
    x, w = arrays(6, 3, 4)

    def two_layers(x: Any, w: Any) -> Any:
        return jnp.sum(jnp.tanh(jnp.exp(x) @ w) @ jnp.sin(w).T)

    assert calls(two_layers, x, w) == 2
    expected, found = (jax.grad(h, argnums=(0, 1))(x, w) for h in (two_layers, fast(two_layers)))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


@pytest.mark.parametrize("unroll", [1, 3])
def test_a_loop_of_networks_has_the_gradient_of_its_steps_written_out(unroll: int) -> None:
    keys = jax.random.split(jax.random.key(3))
    # As many particles as hidden units.
    start = {"in": jax.random.normal(keys[0], (3, 6, 2)), "out": 0.3 * jax.random.normal(keys[1], (3, 2, 6))}

    def target(s: sy.State) -> Any:
        return s.sample("x", dist.Normal(jnp.array([1.0, -2.0]), 0.7))

    def kernel(layer: Any) -> Any:
        return lambda s, x: s.sample("x", dist.Normal(x + layer["out"] @ jnp.tanh(layer["in"] @ x), 0.9))

    def step(q: Any, layer: Any) -> Any:
        k = kernel(layer)
        return sy.propose(sy.extend(target, sy.prev(k)), sy.move(k, sy.resample(q)), objective=sy.objectives.reverse_kl)

    def written_out(layers: Any) -> Any:
        q = target
        for number in range(3):
            q = step(q, jax.tree.map(lambda x: x[number], layers))  # noqa: B023
        return q

    def gradient(build: Any) -> Any:
        return jax.grad(lambda layers: sy.evaluate(build(layers), jax.random.key(1), particles=6).loss)(start)

    expected, found = gradient(written_out), gradient(lambda layers: sy.scan(step, target, layers, unroll=unroll))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
