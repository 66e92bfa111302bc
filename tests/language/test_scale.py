"""`s.observe(..., scale=)`: a part of the data that stands for all of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import steelyard as sy
from tests.running import KEY

DATA = jnp.array([1.3, -0.4, 2.2])


def model(s: sy.State, x: Any, scale: Any = 1.0, other: Any = 1.0) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x, scale=scale)
    with s.when(z > 0):
        s.observe("y", dist.Normal(z, 2.0), 0.7, scale=other)
    return z


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
@pytest.mark.parametrize("scale", [3.5, 7, np.float32(0.25), jnp.asarray(2.5), 1e-30])
def test_the_factor_multiplies_this_log_density_and_no_other(engine: Any, scale: Any) -> None:
    plain, scaled = (sy.evaluate(model, KEY, DATA, s, particles=7, engine=engine) for s in (1.0, scale))
    np.testing.assert_array_equal(scaled.trace["z"], plain.trace["z"])
    for a in ("z", "y"):
        np.testing.assert_array_equal(scaled.log_density[a], plain.log_density[a])
    np.testing.assert_allclose(scaled.log_density["x"], float(scale) * np.asarray(plain.log_density["x"]), rtol=1e-6)
    total = np.asarray(scaled.log_density["x"]) + np.asarray(scaled.log_density.get("y", 0.0))
    np.testing.assert_allclose(scaled.log_weight, total, rtol=1e-5)


def test_it_multiplies_the_power_of_temper_and_holds_in_masks() -> None:
    plain = sy.evaluate(model, KEY, DATA, particles=9)
    both = sy.evaluate(sy.temper(model, 0.3), KEY, DATA, 4.0, 5.0, particles=9)
    np.testing.assert_allclose(both.log_density["x"], 0.3 * 4.0 * plain.log_density["x"], rtol=1e-5)
    np.testing.assert_allclose(both.log_density["y"], 0.3 * 5.0 * plain.log_density["y"], rtol=1e-5)
    assert 0 < np.sum(plain.trace["z"] > 0) < 9


def test_traced_scales_and_their_gradients() -> None:
    def log_z(scale: Any) -> Any:
        return sy.evaluate(model, KEY, DATA, scale, particles=1).log_weight[0]

    density = sy.evaluate(model, KEY, DATA, particles=1).log_density["x"][0]
    np.testing.assert_allclose(jax.jit(jax.grad(log_z))(2.0), density, rtol=1e-5)


def test_exact_marginals_of_a_part_of_the_data() -> None:
    """Bernoulli(0.3), and two observations out of six: the evidence by hand, and proper weighting by enumeration."""

    def coin(s: sy.State) -> Any:
        z = s.sample("z", dist.Bernoulli(0.3))
        s.observe("x", dist.Bernoulli(jnp.where(z == 1, 0.9, 0.4)), jnp.array([1, 0]), scale=3.0)
        return z

    def guide(s: sy.State) -> Any:
        return s.sample("z", dist.Bernoulli(0.6))

    sy.testing.assert_properly_weighted(sy.resample(sy.propose(coin, guide)), particles=2)
    np.testing.assert_allclose(
        [sy.log_density(coin, {"z": 0}), sy.log_density(coin, {"z": 1})],
        np.log([0.7 * (0.4 * 0.6) ** 3, 0.3 * (0.9 * 0.1) ** 3]),
        rtol=1e-5,
    )


def test_without_a_scale_the_equations_are_the_same() -> None:
    def unscaled(s: sy.State, x: Any) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", dist.Normal(z, 0.5), x)
        with s.when(z > 0):
            s.observe("y", dist.Normal(z, 2.0), 0.7)
        return z

    def equations(q: Any) -> str:
        return str(jax.make_jaxpr(lambda key: sy.evaluate(q, key, DATA, particles=3).log_weight)(KEY))

    assert equations(unscaled) == equations(model)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, True, "2", None, [1.0], jnp.ones(3), 10**400, 1j])
def test_what_is_no_scale_is_refused(scale: Any) -> None:
    with pytest.raises(sy.ArgumentError, match="'x': scale is one positive, finite number"):
        sy.evaluate(model, KEY, DATA, scale, particles=2)


def test_traced_scales_have_one_number() -> None:
    with pytest.raises(sy.ArgumentError, match="'x': scale is one positive"):
        jax.jit(lambda c: sy.evaluate(model, KEY, DATA, c, particles=2).log_weight)(jnp.ones(2))


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_numpyro_sees_the_same_density(beta: float) -> None:
    p = sy.temper(model, beta)
    with jax.numpy_rank_promotion("allow"):
        theirs, _ = log_density(sy.to_numpyro(p), (DATA, 3.5, 2.0), {}, {"z": jnp.asarray(0.4)})
    np.testing.assert_allclose(theirs, sy.log_density(p, {"z": 0.4}, DATA, 3.5, 2.0), rtol=1e-5)
