"""Tempered sequential Monte Carlo, with schedules that are fixed, found and followed again."""

from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.algorithms.powers import conditional_ess, next_power

HMC = partial(blackjax.hmc, num_integration_steps=5)
X = jnp.array([1.0, -0.4, 0.7])
EXACT = float(dist.MultivariateNormal(jnp.zeros(3), 0.04 * jnp.eye(3) + jnp.ones((3, 3))).log_prob(X))


def model(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.2), X)
    return z


def test_a_fixed_schedule_is_properly_weighted() -> None:
    kernel = partial(HMC, step_size=0.15, inverse_mass_matrix=jnp.ones(1))
    q = sy.algorithms.tempered(model, kernel, jnp.linspace(0.0, 1.0, 8) ** 3)
    sy.testing.check_evidence(q, EXACT, key=jax.random.key(0), particles=100, runs=200, max_standard_error=0.05)
    out = sy.evaluate(q, jax.random.key(0), particles=2000)
    assert [level.label.split("(")[0] for level in out.levels] == ["propose", "resample", "mcmc"]
    mean = X.sum() / 3.04
    np.testing.assert_allclose(out.expect(lambda t: t["z"]), mean, atol=0.03)


def test_it_is_the_program_of_its_docstring() -> None:
    kernel, betas = partial(blackjax.normal_random_walk, sigma=0.2 * jnp.eye(1)), jnp.array([0.0, 0.2, 1.0])
    q: Any = sy.temper(model, betas[0])
    for beta in betas[1:]:
        q = sy.mcmc(kernel, sy.resample(sy.propose(sy.temper(model, beta), q), threshold=0.5))
    one, other = (
        sy.evaluate(p, jax.random.key(0), particles=20) for p in (q, sy.algorithms.tempered(model, kernel, betas))
    )
    np.testing.assert_allclose(one.trace["z"], other.trace["z"], rtol=1e-5)
    np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-5)


def test_adaptive_then_fixed() -> None:
    run = jax.jit(lambda key: sy.evaluate(sy.algorithms.tempered(model, HMC, sy.adaptive()), key, particles=2000))
    pilot = run(jax.random.key(0))
    np.testing.assert_allclose(pilot.log_z, EXACT, atol=0.15)
    schedule = sy.found(pilot)
    assert schedule.beta[0] == 0
    assert schedule.beta[-1] == 1
    assert (jnp.diff(schedule.beta) > 0).all()
    assert {x.shape[0] for x in schedule.parameters.values()} == {schedule.beta.size - 1}
    np.testing.assert_allclose(schedule.parameters["inverse_mass_matrix"][-1, 0], 0.04 / 3.04, rtol=0.2)
    assert 0.4 < pilot.levels[-1].acceptance[: schedule.beta.size - 1].mean() < 0.9
    q = sy.algorithms.tempered(model, HMC, schedule)
    sy.testing.check_evidence(q, EXACT, key=jax.random.key(1), particles=100, runs=200, max_standard_error=0.05)
    assert "step_size" in repr(schedule)
    assert "adaptive:" in repr(pilot)


def test_a_bound_that_is_reached_is_no_result() -> None:
    q = sy.algorithms.tempered(model, partial(blackjax.normal_random_walk, sigma=0.2 * jnp.eye(1)), sy.adaptive(most=2))
    with pytest.raises(sy.WeightError, match="not reached its end after 2 levels.*Raise most"):
        sy.evaluate(q, jax.random.key(0), particles=50)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=50))(jax.random.key(0))
    assert jnp.isnan(out.log_z)
    assert "no result" in repr(out)
    again = jax.jit(lambda key: sy.evaluate(sy.propose(model, q), key, particles=50))(jax.random.key(0))
    assert jnp.isnan(again.log_z)
    with pytest.raises(sy.GrammarError, match="found"):
        sy.log_density(q, {"z": 0.0})


def test_engines_agree() -> None:
    q = sy.algorithms.tempered(model, blackjax.mala, sy.adaptive(ess=0.3))
    one, other = (sy.evaluate(q, jax.random.key(0), particles=3, engine=e) for e in ("vectorized", "universal"))
    np.testing.assert_allclose(one.trace["z"], other.trace["z"], rtol=1e-3)
    np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-3)
    np.testing.assert_allclose(sy.found(one).beta, sy.found(other).beta, rtol=1e-3)


def test_initial_particles_from_a_proposal_and_dense_masses() -> None:
    def two(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        s.observe("x", dist.Normal(z[0] + z[1], 0.1), 1.0)

    def guide(s: sy.State) -> None:
        s.sample("z", dist.Normal(jnp.zeros(2), 1.3).to_event(1))

    q = sy.algorithms.tempered(two, HMC, sy.adaptive(dense=True), initial=guide, steps=2)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=2000))(jax.random.key(0))
    np.testing.assert_allclose(out.log_z, dist.Normal(0.0, 2.01**0.5).log_prob(1.0), atol=0.2)
    matrix = sy.found(out).parameters["inverse_mass_matrix"][-1]
    assert matrix.shape == (2, 2)
    assert matrix[0, 1] < -0.3


def test_vmap_over_keys() -> None:
    q = sy.algorithms.tempered(model, blackjax.mala, sy.adaptive(ess=0.5))
    run = lambda key: sy.evaluate(q, key, particles=30)  # noqa: E731
    keys = jax.random.split(jax.random.key(0), 2)
    both = jax.jit(jax.vmap(run))(keys)
    np.testing.assert_allclose(both.log_z[1], jax.jit(run)(keys[1]).log_z, rtol=1e-4)


def test_the_next_power() -> None:
    w, likelihood = jnp.zeros(4), jnp.array([-1e6, -2e6, -1.5e6, -jnp.inf])
    beta = next_power(w, likelihood, jnp.asarray(0.0), 0.8)
    np.testing.assert_allclose(conditional_ess(w, beta * likelihood), 0.8 * 0.75, rtol=1e-4)
    assert next_power(w, 1e-9 * likelihood, jnp.asarray(0.4), 0.8) == 1
    skewed = jnp.log(jnp.array([0.7, 0.1, 0.1, 0.1]))
    later = next_power(skewed, jnp.array([0.0, 5.0, 1.0, 2.0]), jnp.asarray(0.3), 0.9)
    assert 0.3 < later < 1
    v = jnp.exp((later - 0.3) * jnp.array([0.0, 5.0, 1.0, 2.0]))
    share = jnp.exp(skewed)
    np.testing.assert_allclose((share @ v) ** 2 / (share @ v**2), 0.9, rtol=1e-3)


def test_particles_of_likelihood_zero_die_and_the_others_go_on() -> None:
    def positive(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("f", jnp.where(z > 0, -50.0 * (z - 1.0) ** 2, -jnp.inf))

    q = sy.algorithms.tempered(positive, HMC, sy.adaptive())
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=4000))(jax.random.key(0))
    exact = 0.5 * jnp.log(2 * jnp.pi / 100) + dist.Normal(0.0, (1.01) ** 0.5).log_prob(1.0)
    np.testing.assert_allclose(out.log_z, exact, atol=0.2)


def test_errors_name_the_remedy() -> None:
    for schedule in ([0.0, 0.5], [0.5, 0.2, 1.0], [-0.1, 1.0]):
        with pytest.raises(sy.ArgumentError, match=r"rise from 0.*sy.adaptive"):
            sy.algorithms.tempered(model, HMC, schedule)
    with pytest.raises(sy.ArgumentError, match="row of powers"):
        sy.algorithms.tempered(model, HMC, jnp.ones((2, 2)))
    with pytest.raises(sy.ArgumentError, match="ess"):
        sy.adaptive(ess=1.0)
    with pytest.raises(sy.ArgumentError, match="acceptance"):
        sy.adaptive(acceptance=0.0)
    with pytest.raises(sy.ArgumentError, match="adaptive"):
        sy.found(sy.evaluate(model, jax.random.key(0), particles=2))


def test_a_density_that_is_zero_everywhere_has_no_result_under_jit() -> None:
    """Where nothing but log Z leaves the compiled function, XLA fuses the exponential of NaN with what is around it."""

    def impossible(s: sy.State) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("f", -jnp.inf)

    q = sy.algorithms.tempered(impossible, blackjax.mala, sy.adaptive(most=5))
    for h in (lambda out: out.log_z, lambda out: out.ess, lambda out: out.normalized_weights):
        assert jnp.isnan(jax.jit(lambda key: h(sy.evaluate(q, key, particles=5)))(jax.random.key(0))).all()  # noqa: B023
