"""NumPyro models as programs, next to the same models written natively: tempered SMC with Hamiltonian moves."""

from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.measure import Row, compare
from tests.interop.models import EFFECTS, ERRORS, X, Y, eight_schools, horseshoe, stochastic_volatility

PARTICLES, POWERS = 1000, 10


def native_eight_schools(s: sy.State, y: Any, sigma: Any) -> Any:
    """Eight schools."""
    mu = s.sample("mu", dist.Normal(0.0, 5.0))
    tau = s.sample("tau", dist.HalfCauchy(5.0))
    theta = s.sample("theta", dist.Normal(jnp.broadcast_to(mu, 8), tau))
    s.observe("obs", dist.Normal(theta, sigma), y)
    return theta


def native_horseshoe(s: sy.State, x: Any, y: Any) -> None:
    """A regression with sparse weights."""
    tau = s.sample("tau", dist.HalfCauchy(1.0))
    shrinkage = s.sample("shrinkage", dist.HalfCauchy(jnp.ones(3)))
    w = s.sample("w", dist.Normal(0.0, tau * shrinkage))
    precision = s.sample("precision", dist.Gamma(3.0, 1.0))
    s.observe("y", dist.Normal(x @ w, 1 / jnp.sqrt(precision)), y)


def native_volatility(s: sy.State, returns: Any) -> None:
    """Stochastic volatility."""
    step_size = s.sample("step_size", dist.Exponential(10.0))
    path = s.sample("s", dist.GaussianRandomWalk(scale=step_size, num_steps=len(returns)))
    nu = s.sample("nu", dist.Exponential(0.1))
    s.observe("r", dist.StudentT(df=nu + 1.0, loc=0.0, scale=jnp.exp(path)), returns)


def sampler(model: Any, size: int) -> Any:
    """Evaluate tempered SMC for a model."""
    kernel = partial(blackjax.hmc, step_size=0.1, inverse_mass_matrix=jnp.ones(size), num_integration_steps=8)
    q = sy.algorithms.tempered(model, kernel, jnp.linspace(0.0, 1.0, POWERS) ** 2)

    def run(key: Any, *args: Any) -> Any:
        out = sy.evaluate(q, key, *args, particles=PARTICLES)
        return out.log_z, dict(out.trace)

    return run


def run() -> list[Row]:
    """Measure."""
    tasks = {
        "eight schools": (eight_schools, native_eight_schools, (EFFECTS, ERRORS), 10),
        "horseshoe": (horseshoe, native_horseshoe, (X, Y), 8),
        "stochastic volatility": (stochastic_volatility, native_volatility, (Y,), 9),
    }
    rows = []
    for task, (adapted, native, args, size) in tasks.items():
        contenders = {"native": sampler(native, size), "from_numpyro": sampler(sy.from_numpyro(adapted), size)}
        rows.append(compare(task, contenders, (jax.random.key(0), *map(jnp.asarray, args)), "native"))
    return rows
