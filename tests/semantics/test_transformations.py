"""Programs under jit, vmap and grad."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, run

SCALE, NOISE = 1.5, 0.5


def model(s: sy.State, mean: jax.Array, x: jax.Array) -> jax.Array:
    z = s.sample("z", dist.Normal(mean, SCALE))
    s.observe("x", dist.Normal(2.0 * z, NOISE), x)
    return z


def posterior(s: sy.State, mean: jax.Array, x: jax.Array) -> None:
    precision = 1 / SCALE**2 + 4 / NOISE**2
    s.sample("z", dist.Normal((mean / SCALE**2 + 2 * x / NOISE**2) / precision, precision**-0.5))


def guide(s: sy.State, mean: jax.Array, x: jax.Array) -> None:
    s.sample("z", dist.Normal(0.45 * x + 0.1 * mean, 0.4))


def evidence(mean: Any, x: Any) -> jax.Array:
    """Return log p(x), where x ~ N(2 mean, 4 scale^2 + noise^2)."""
    return dist.Normal(2.0 * jnp.asarray(mean), (4 * SCALE**2 + NOISE**2) ** 0.5).log_prob(x)


def log_z(q: Any, mean: Any, x: Any, key: jax.Array = KEY, particles: int = 50) -> jax.Array:
    return sy.evaluate(q, key, mean, x, particles=particles).log_z


def test_jit_changes_nothing() -> None:
    q = sy.resample(sy.propose(model, guide))
    eager, compiled = sy.evaluate(q, KEY, 0.3, 1.7, particles=6), run(q, 0.3, 1.7, particles=6)
    assert jax.tree.structure(eager) == jax.tree.structure(compiled)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), eager, compiled)


def test_vmap_over_data_is_a_loop_over_data() -> None:
    q = sy.resample(sy.propose(model, guide))
    xs, keys = jnp.array([-2.0, 0.1, 5.0]), jax.random.split(KEY, 3)
    batch = jax.jit(jax.vmap(lambda key, x: sy.evaluate(q, key, 0.3, x, particles=4)))(keys, xs)
    single = jax.jit(lambda key, x: sy.evaluate(q, key, 0.3, x, particles=4))
    for i in range(3):
        one = single(keys[i], xs[i])
        np.testing.assert_allclose(batch.trace["z"][i], one.trace["z"], rtol=1e-5)
        np.testing.assert_allclose(batch.log_weight[i], one.log_weight, rtol=1e-5)
        np.testing.assert_allclose(batch.log_z[i], one.log_z, rtol=1e-5)


def test_programs_with_one_key_for_all_data() -> None:
    xs = jnp.array([-2.0, 0.1, 5.0])
    batch = jax.vmap(lambda x: sy.evaluate(model, KEY, 0.3, x, particles=4))(xs)
    assert batch.log_weight.shape == (3, 4)
    np.testing.assert_allclose(batch.log_weight[2], run(model, 0.3, 5.0, particles=4).log_weight, rtol=1e-5)


def test_gradient_of_log_z_is_exact_with_the_exact_posterior() -> None:
    q = sy.propose(model, posterior)
    value, gradient = jax.jit(jax.value_and_grad(lambda m: log_z(q, m, 1.7)))(0.3)
    np.testing.assert_allclose(value, evidence(0.3, 1.7), rtol=1e-5)
    np.testing.assert_allclose(gradient, jax.grad(evidence)(0.3, 1.7), rtol=1e-4)
    # A weight that stopped the gradient of either density would give another number.
    assert abs(gradient) > 0.1


def test_gradient_of_log_z_is_that_of_finite_differences() -> None:
    q = sy.propose(sy.extend(model, lambda s, z: s.sample("u", dist.Normal(z, 1.0))), guide)
    with jax.enable_x64(True):
        at = np.array([0.3, 1.7])
        function = jax.jit(jax.value_and_grad(lambda v: log_z(q, v[0], v[1], jax.random.key(3), particles=20)))
        expected = [(function(at + step)[0] - function(at - step)[0]) / 2e-6 for step in 1e-6 * np.eye(2)]
        np.testing.assert_allclose(function(at)[1], expected, rtol=1e-5)


PRIORS = {
    "Uniform": dist.Uniform(-0.5, 0.8),
    "LogNormal": dist.LogNormal(0.2, 0.7),
    "Gamma": dist.Gamma(2.0, 1.5),
}


@pytest.mark.parametrize("name", PRIORS)
def test_gradient_passes_over_proposals_outside_of_the_support(name: str) -> None:
    """Densities outside of a support are often NaN, which a `where` alone would let into the gradient."""

    def bounded(s: sy.State, _: jax.Array) -> None:
        z = s.sample("z", PRIORS[name])
        s.observe("x", dist.Normal(z, 1.0), 0.6)

    def wide(s: sy.State, mean: jax.Array) -> None:
        s.sample("z", dist.Normal(mean, 1.0))

    def estimate(mean: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = sy.evaluate(sy.propose(bounded, wide), jax.random.key(5), mean, particles=30)
        return out.log_z, out.log_weight

    with jax.enable_x64(True):
        function = jax.jit(jax.value_and_grad(estimate, has_aux=True))
        (_, log_weight), gradient = function(0.2)
        assert 3 < np.isneginf(log_weight).sum() < 27
        expected = (function(0.2 + 1e-6)[0][0] - function(0.2 - 1e-6)[0][0]) / 2e-6
        np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_gradient_through_resampling_is_that_of_the_values() -> None:
    """Ancestors are whole numbers: the weight before the resampling still carries its gradient."""
    q = sy.resample(sy.propose(model, posterior))
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda m: log_z(q, m, 1.7)))(0.3), jax.grad(evidence)(0.3, 1.7), rtol=1e-4
    )


def test_other_data_of_the_same_shape_is_not_traced_again() -> None:
    calls: list[str] = []

    def counted(s: sy.State, mean: jax.Array, x: jax.Array) -> None:
        calls.append("model")
        model(s, mean, x)

    def counted_guide(s: sy.State, mean: jax.Array, x: jax.Array) -> None:
        calls.append("guide")
        guide(s, mean, x)

    compiled = jax.jit(lambda key, mean, x: log_z(sy.propose(counted, counted_guide), mean, x, key))
    first = compiled(KEY, 0.3, 1.7)
    assert sorted(calls) == ["guide", "model"]
    second = compiled(jax.random.key(8), -0.3, 0.2)
    assert sorted(calls) == ["guide", "model"]
    assert first != second
    np.testing.assert_allclose(second, log_z(sy.propose(model, guide), -0.3, 0.2, jax.random.key(8)), rtol=1e-5)


def test_weights_without_information_under_jit() -> None:
    def impossible(s: sy.State, value: jax.Array) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("f", value)

    for q in (impossible, sy.resample(impossible), sy.resample(impossible, threshold=0.5)):
        assert run(q, -jnp.inf, particles=3).log_z == -jnp.inf
        assert jnp.isnan(run(q, jnp.nan, particles=3).log_z)


def test_evaluations_pass_through_control_flow() -> None:
    def body(total: jax.Array, key: jax.Array) -> tuple[jax.Array, sy.Evaluation]:
        out = sy.evaluate(sy.propose(model, guide), key, 0.3, 1.7, particles=5)
        return total + out.log_z, out

    keys = jax.random.split(KEY, 3)
    total, outs = jax.lax.scan(body, 0.0, keys)
    np.testing.assert_allclose(total, outs.log_z.sum(), rtol=1e-5)
    np.testing.assert_allclose(outs.log_z, np.log(np.exp(outs.log_weight).mean(axis=1)), rtol=1e-4)
    chosen = jax.lax.cond(outs.log_z[0] > 100, lambda: outs, lambda: jax.tree.map(lambda x: -x, outs))
    np.testing.assert_allclose(chosen.value, -outs.value)
