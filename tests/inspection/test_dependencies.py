"""Densities that cannot have changed are taken over: the same results, for less."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy

YS = jnp.array([0.3, -0.2, 0.9, 1.4, 0.2])


def chain(parameters: Any, size: int = 5) -> Any:
    def model(s: sy.State, ys: Any) -> Any:
        z, zs = jnp.zeros(()), []
        for t in range(size):
            z = s.sample(f"z{t}", dist.Normal(parameters[0] * z, 0.9))
            s.observe(f"y{t}", dist.Normal(z, parameters[1]), ys[t])
            zs.append(z)
        return jnp.stack(zs), ys

    return model


def update(parameters: Any, t: int) -> Any:
    def kernel(s: sy.State, value: Any) -> None:
        zs, ys = value
        s.sample(f"z{t}", dist.Normal(parameters[2] * ys[t] + (0.2 * zs[t - 1] if t else 0.0), 0.7))

    return kernel


def sweeps(parameters: Any, number: int, algorithm: Any) -> Any:
    """Return sweeps over three variables: the second has two neighbours, the first and the last have one."""
    model = chain(parameters, 3)
    kernels = [update(parameters, t) for t in range(3)]
    return algorithm(model, model, kernels, number)


def test_the_table_is_the_markov_blanket() -> None:
    table = sy.dependencies(chain((0.8, 0.5)), YS)
    assert table["z0"] == {"z0"} and table["z3"] == {"z2", "z3"} and table["y2"] == {"z2"}
    assert "density at" in repr(table)


def test_results_and_gradients_are_the_same_without() -> None:
    parameters = jnp.array([0.8, 0.5, 0.6])
    for algorithm in (sy.algorithms.gibbs, sy.algorithms.apg):

        def loss(parameters: Any, optimize: bool, algorithm: Any = algorithm) -> Any:
            q = sweeps(parameters, 2, algorithm)
            out = sy.evaluate(q, jax.random.key(0), YS, particles=30, optimize=optimize, objective=sy.objectives.elbo)
            return out.loss + out.log_weight.sum(), out

        run = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
        ((_, fast), fast_gradient), ((_, plain), plain_gradient) = run(parameters, True), run(parameters, False)
        np.testing.assert_allclose(fast.log_weight, plain.log_weight, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(fast.trace["z1"], plain.trace["z1"], rtol=1e-4, atol=1e-5)
        for address in plain.log_density:
            np.testing.assert_allclose(fast.log_density[address], plain.log_density[address], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(fast_gradient, plain_gradient, rtol=5e-3, atol=5e-3)


def test_an_update_costs_its_markov_blanket() -> None:
    """An update of one of many variables does not compute the densities of the others."""

    def operations(size: int, optimize: bool) -> int:
        model = chain((0.8, 0.5), size)
        q = sy.propose(model, model)
        q = sy.propose(sy.extend(model, sy.prev(update((0.8, 0.5, 0.6), 1))), sy.move(update((0.8, 0.5, 0.6), 1), q))
        weight = lambda key, ys: sy.evaluate(q, key, ys, particles=4, optimize=optimize).log_weight  # noqa: E731
        first = sy.propose(model, model)
        alone = lambda key, ys: sy.evaluate(first, key, ys, particles=4).log_weight  # noqa: E731
        texts = [jax.jit(f).lower(jax.random.key(0), jnp.zeros(size)).compile().as_text() for f in (weight, alone)]
        count = [text.count("subtract(") for text in texts]
        return count[0] - count[1]

    assert operations(12, True) <= operations(5, True) + 1


def test_a_target_is_traced_once() -> None:
    """An update traces what it needs: the equations of a sweep grow with the chain, but for sums of its densities."""

    def equations(size: int) -> int:
        model = chain((0.8, 0.5), size)
        kernels = [update((0.8, 0.5, 0.6), t) for t in range(size)]
        q: Any = sy.propose(model, model)
        for kernel in kernels:
            q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, q))
        return len(
            jax.make_jaxpr(lambda key: sy.evaluate(q, key, jnp.zeros(size), particles=4))(jax.random.key(0)).eqns
        )

    assert equations(20) < 2.5 * equations(10)


def agree(q: Any, *args: Any, particles: int = 7, **options: Any) -> sy.Evaluation:
    """Compare an evaluation in which densities are taken over with one in which they are not."""
    fast, plain = (
        sy.evaluate(q, jax.random.key(0), *args, particles=particles, optimize=x, **options) for x in (True, False)
    )
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-4, atol=1e-4)
    return fast


def test_a_kernel_may_be_the_program_of_the_target() -> None:
    def model(s: sy.State, x: Any) -> Any:
        a = s.sample("a", dist.Normal(0.3 * jnp.sum(x), 1.0))
        s.sample("b", dist.Normal(a, 0.5))
        return x

    def update_b(s: sy.State, x: Any) -> Any:
        s.sample("b", dist.Normal(0.1, 1.2))
        return x

    q = sy.propose(sy.extend(model, sy.prev(model)), sy.move(update_b, sy.propose(model, model)))
    agree(sy.propose(sy.extend(model, sy.prev(model)), sy.move(model, q)), jnp.array([0.2, 0.5]))


def test_values_stay_what_they_are() -> None:
    """Constants, shared data, trees, whole numbers, and as many rows as particles."""
    size = 7

    def model(s: sy.State, data: Any) -> Any:
        k = s.sample("k", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        z = s.sample("z", dist.Normal(jnp.zeros(size), 1.0))
        s.observe("y", dist.Normal(z + k, 0.5), data["y"])
        s.factor("constant", 0.7)
        return {"k": k, "data": data, "one": 1, "ones": jnp.ones(size), "shifted": data["y"] + 1.0, "pair": (z, z + k)}

    def update_k(s: sy.State, value: Any) -> Any:
        s.sample(
            "k", dist.Categorical(logits=-jnp.abs(jnp.arange(3.0) - jnp.mean(value["data"]["y"] - value["pair"][0])))
        )
        return value

    q = sy.algorithms.gibbs(model, model, [update_k], 2, unroll=2)
    for chunk in (None, 3):
        out = agree(q, {"y": jnp.linspace(-1.0, 2.0, size)}, particles=size, chunk=chunk)
        assert out.value["k"].dtype == out.trace["k"].dtype == jnp.int32
        np.testing.assert_allclose(out.value["pair"][1], out.trace["z"] + out.trace["k"][:, None], rtol=1e-6)


def test_arguments_that_differ_between_particles_go_along_when_they_are_resampled() -> None:
    def first(s: sy.State) -> Any:
        return s.sample("m", dist.Normal(0.0, 2.0))

    def model(s: sy.State, m: Any) -> Any:
        a, b = s.sample("a", dist.Normal(m, 1.0)), s.sample("b", dist.Normal(-m, 0.5))
        s.observe("y", dist.Normal(a + b, 0.3), 0.4)
        return a, m

    def update_a(s: sy.State, value: Any) -> Any:
        a, m = value
        return s.sample("a", dist.Normal(0.5 * a + 0.2 * m, 0.8)), m

    q = sy.algorithms.gibbs(model, model, [update_a, update_a], 2)
    out = agree(sy.compose(q, first), particles=30)
    assert out.ancestors is not None


def test_a_program_may_run_with_other_data_in_the_same_evaluation() -> None:
    def model(s: sy.State, data: Any) -> Any:
        y, other = data
        a = s.sample("a", dist.Normal(y[0], 1.0))
        b = s.sample("b", dist.Normal(0.5 * y[1], 2.0))
        s.observe("y", dist.Normal(a + b, 0.5), y[0] - y[1])
        return other, y

    def update_a(s: sy.State, data: Any) -> Any:
        s.sample("a", dist.Normal(0.2, 1.5))
        return data

    updated = sy.propose(sy.extend(model, sy.prev(update_a)), sy.move(update_a, sy.propose(model, model)))
    again = sy.rename(updated, {"a": "a2", "b": "b2", "y": "y2"})
    out = agree(sy.compose(again, updated), (jnp.array([0.3, -1.0]), jnp.array([2.0, 5.0])), particles=9)
    expected = sy.log_density(lambda s: s.sample("b", dist.Normal(2.5, 2.0)), {"b": out.trace["b2"][0]})
    np.testing.assert_allclose(out.log_density["b2"][0], expected, rtol=1e-5)


def test_gradients_reach_parameters_that_a_program_closes_over_under_vmap_and_in_loops() -> None:
    def loss(parameters: Any, key: Any, optimize: bool, algorithm: Any) -> Any:
        q = sweeps(parameters, 2, algorithm)
        out = sy.evaluate(q, key, YS, particles=6, optimize=optimize, objective=sy.objectives.elbo)
        return out.loss + jnp.sum(out.log_weight * jnp.arange(6.0))

    keys, parameters = jax.random.split(jax.random.key(5), 3), jnp.array([0.8, 0.5, 0.6])
    # Backwards without vmap: see test_results_and_gradients_are_the_same_without.
    for algorithm, transformed in ((sy.algorithms.gibbs, jax.jacfwd), (sy.algorithms.apg, jax.grad)):
        gradient = jax.jit(jax.vmap(transformed(loss), (None, 0, None, None)), static_argnums=(2, 3))
        fast, plain = (gradient(parameters, keys, x, algorithm) for x in (True, False))
        np.testing.assert_allclose(fast, plain, rtol=5e-3, atol=5e-3)


def test_opaque_control_flow_is_treated_conservatively() -> None:
    def model(s: sy.State) -> Any:
        a = s.sample("a", dist.Normal(0.0, 1.0))
        b = s.sample("b", dist.Normal(0.0, 1.0))
        low, high = jax.lax.cond(a > 0, lambda: (a, b), lambda: (b, a))
        s.factor("low", -(low**2))
        s.factor("high", -0.5 * high**2)
        return a, b

    def move_a(s: sy.State, value: Any) -> None:
        s.sample("a", dist.Normal(0.3 * value[1], 1.0))

    table = sy.dependencies(model)
    assert table["low"] == table["high"] == {"a", "b"} and table["b"] == {"b"}
    q = sy.algorithms.gibbs(model, model, [move_a], 2)
    fast, plain = (sy.evaluate(q, jax.random.key(0), particles=20, optimize=x) for x in (True, False))
    np.testing.assert_allclose(fast.log_weight, plain.log_weight, rtol=1e-4, atol=1e-4)


def test_another_target_is_never_taken_for_the_same() -> None:
    """Two programs with the same addresses: nothing may be taken over."""
    narrow, wide = chain((0.8, 0.5)), chain((0.8, 1.5))
    kernel = update((0.8, 0.5, 0.6), 1)
    q = sy.propose(sy.extend(wide, sy.prev(kernel)), sy.move(kernel, sy.propose(narrow, narrow)))
    fast, plain = (sy.evaluate(q, jax.random.key(0), YS, particles=20, optimize=x) for x in (True, False))
    np.testing.assert_array_equal(fast.log_weight, plain.log_weight)
