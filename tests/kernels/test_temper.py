"""The density of what is observed, to a power."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    s.factor("f", -0.3 * z)
    with s.when(z > 0):
        s.sample("u", dist.Gamma(2.0, 1.0))
        s.observe("y", dist.Normal(z, 2.0), 0.7)
    return z


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0, 2.0, jnp.asarray(0.3)])
def test_every_observed_density_and_no_other(engine: Any, beta: Any) -> None:
    def run(p: Any) -> sy.Evaluation:
        return sy.evaluate(p, jax.random.key(0), 1.3, particles=6, engine=engine)

    plain, hot = run(model), run(sy.temper(model, beta))
    for a, log_density in plain.log_density.items():
        power = beta if a in ("x", "f", "y") else 1.0
        np.testing.assert_allclose(hot.log_density[a], power * log_density, rtol=1e-5, err_msg=a)
    np.testing.assert_array_equal(plain.trace["z"], hot.trace["z"])
    np.testing.assert_allclose(hot.log_weight, beta * plain.log_weight, rtol=1e-5, atol=1e-6)


def test_powers_multiply_and_reach_through_programs() -> None:
    def kernel(s: sy.State, z: Any) -> None:
        s.sample("v", dist.Normal(z, 1.0))

    trace = {"z": -0.4}
    once = sy.log_density(sy.temper(model, 0.3), trace, 1.3)
    np.testing.assert_allclose(sy.log_density(sy.temper(sy.temper(model, 0.6), 0.5), trace, 1.3), once, rtol=1e-6)
    renamed = sy.temper(sy.rename(model, {"z": "a"}), 0.3)
    np.testing.assert_allclose(sy.log_density(renamed, {"a": -0.4}, 1.3), once, rtol=1e-6)
    extended = sy.temper(sy.extend(model, kernel), 0.3)
    added = dist.Normal(-0.4, 1.0).log_prob(0.2)
    np.testing.assert_allclose(sy.log_density(extended, {**trace, "v": 0.2}, 1.3), once + added, rtol=1e-6)


def test_zero_to_the_power_of_zero_is_one() -> None:
    def impossible(s: sy.State) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", dist.Uniform(0.0, 1.0), 2.0)
        s.factor("f", -jnp.inf)

    for beta in (0.0, jnp.asarray(0.0)):
        assert sy.evaluate(sy.temper(impossible, beta), jax.random.key(0), particles=3).log_z == 0
    assert jax.jit(lambda b: sy.evaluate(sy.temper(impossible, b), jax.random.key(0), particles=3).log_z)(0.0) == 0
    assert sy.log_density(sy.temper(impossible, 1e-9), {"z": 0.0}) == -jnp.inf


def test_gradients() -> None:
    def log_density(beta: Any) -> Any:
        return sy.log_density(sy.temper(model, beta), {"z": -0.4}, 1.3)

    rest = sy.log_density(model, {"z": -0.4}, 1.3) - dist.Normal(0.0, 1.0).log_prob(-0.4)
    for beta in (0.0, 0.5):
        np.testing.assert_allclose(jax.grad(log_density)(beta), rest, rtol=1e-6)


def test_in_a_scan_over_powers() -> None:
    """Annealed importance sampling without moves is importance sampling from the prior."""
    q = sy.scan(lambda q, b: sy.propose(sy.temper(model, b), q), sy.temper(model, 0.0), jnp.array([0.1, 0.4, 1.0]))
    one, other = (sy.evaluate(p, jax.random.key(0), 1.3, particles=9) for p in (q, model))
    np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-5, atol=1e-6)


def test_errors_and_names(capsys: Any) -> None:
    with pytest.raises(sy.ArgumentError, match="from 0"):
        sy.temper(model, -0.1)
    with pytest.raises(sy.ArgumentError, match="from 0"):
        sy.temper(model, float("nan"))
    with pytest.raises(sy.GrammarError, match="target program"):
        sy.temper(sy.resample(model), 0.5)
    sy.show(sy.propose(sy.temper(model, 0.5), model))
    assert "temper(model, 0.5)" in capsys.readouterr().out
