"""Continuous and mixed problems: programs, and expectations by quadrature written without the library."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from tests.objectives.densities import log_bernoulli, log_normal
from tests.objectives.estimates import Build, Objective, Params

GRID = np.linspace(-9.0, 9.0, 361)
STEP = GRID[1] - GRID[0]


# One variable on the line, seen through a nonlinear likelihood.
PARAMS: Params = {"prior": 0.9, "noise": 0.1, "mean": -0.3, "scale": 0.3}
DATUM = 1.2


def model(params: Params) -> Any:
    def program(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(params["prior"], 1.0))
        s.observe("x", dist.Normal(z + jnp.tanh(z), jnp.exp(params["noise"])), DATUM)

    return program


def guide(params: Params) -> Any:
    return lambda s: s.sample("z", dist.Normal(params["mean"], jnp.exp(params["scale"])))


def proposal(change: Callable[[Any], Any] = lambda f: f) -> Build:
    """The propose of the model and the guide, which may be changed by detach or stick_the_landing."""
    return lambda params, objective: sy.propose(model(params), change(guide(params)), objective=objective)


def expected_loss(params: Params, particles: int, loss: Callable[[Any], Any]) -> Any:
    """The expectation of a function of the log weights of one or two particles."""
    log_q = log_normal(GRID, params["mean"], jnp.exp(params["scale"]))
    likelihood = log_normal(DATUM, GRID + jnp.tanh(GRID), jnp.exp(params["noise"]))
    log_w = log_normal(GRID, params["prior"], 1.0) + likelihood - log_q
    if particles == 1:
        return jnp.sum(jnp.exp(log_q) * jax.vmap(loss)(log_w[:, None])) * STEP
    pairs = jnp.stack(jnp.meshgrid(log_w, log_w), axis=-1)
    return jnp.sum(jnp.exp(log_q[:, None] + log_q[None, :]) * jax.vmap(jax.vmap(loss))(pairs)) * STEP**2


class Mixed(NamedTuple):
    """A guide over a flag z and a number u, and its elbo by quadrature over u for either value of z."""

    build: Build
    params: Params
    negative_elbo: Callable[[Params], Any]


MODEL: Params = {"prior": 0.4, "location": -0.6}
OBSERVED, NOISE = 1.1, 0.8


def _model(params: Params) -> Any:
    def program(s: sy.State) -> None:
        z = s.sample("z", dist.Bernoulli(logits=params["prior"]))
        u = s.sample("u", dist.Normal(params["location"] + 0.9 * z, 1.0))
        s.observe("x", dist.Normal(u + 0.5 * z, NOISE), OBSERVED)

    return program


def _negative_elbo(params: Params, log_q: Callable[[int], Any]) -> Any:
    """The sum over z and the integral over u, where `log_q` gives the guide's density on the grid of u."""
    total = 0.0
    for z in (0, 1):
        log_p = log_bernoulli(z, params["prior"]) + log_normal(GRID, params["location"] + 0.9 * z, 1.0)
        log_p = log_p + log_normal(OBSERVED, GRID + 0.5 * z, NOISE)
        total -= jnp.sum(jnp.exp(log_q(z)) * (log_p - log_q(z))) * STEP
    return total


def discrete_first(change: Callable[[Any], Any] = lambda f: f) -> Mixed:
    """z, which is not reparameterised, and then u given z, which is."""

    def build(params: Params, objective: Objective) -> Any:
        def guide(s: sy.State) -> None:
            z = s.sample("z", dist.Bernoulli(logits=params["logit"]))
            s.sample("u", dist.Normal(params["mean"][z], jnp.exp(params["scale"])))

        return sy.propose(_model(params), change(guide), objective=objective)

    def log_q(params: Params, z: int) -> Any:
        u = log_normal(GRID, params["mean"][z], jnp.exp(params["scale"]))
        return log_bernoulli(z, params["logit"]) + u

    params = {**MODEL, "logit": -0.8, "mean": np.array([-0.7, 1.4]), "scale": 0.2}
    return Mixed(build, params, lambda p: _negative_elbo(p, lambda z: log_q(p, z)))


def continuous_first() -> Mixed:
    """u, and then z given u: the score of z depends on the guide of u through the path of u."""

    def build(params: Params, objective: Objective) -> Any:
        def guide(s: sy.State) -> None:
            u = s.sample("u", dist.Normal(params["mean"], jnp.exp(params["scale"])))
            s.sample("z", dist.Bernoulli(logits=params["logit"] + params["slope"] * u))

        return sy.propose(_model(params), guide, objective=objective)

    def log_q(params: Params, z: int) -> Any:
        u = log_normal(GRID, params["mean"], jnp.exp(params["scale"]))
        return u + log_bernoulli(z, params["logit"] + params["slope"] * GRID)

    params = {**MODEL, "logit": -0.7, "slope": -0.8, "mean": 0.9, "scale": 0.2}
    return Mixed(build, params, lambda p: _negative_elbo(p, lambda z: log_q(p, z)))


def sometimes_present() -> Mixed:
    """u exists only in the particles where z = 1."""

    def program(s: sy.State, logit: Any, mean: Any, scale: Any) -> Any:
        z = s.sample("z", dist.Bernoulli(logits=logit))
        with s.when(z == 1):
            u = s.sample("u", dist.Normal(mean, scale))
        return jnp.where(z == 1, u, 0.0)

    def build(params: Params, objective: Objective) -> Any:
        def model(s: sy.State) -> None:
            u = program(s, params["prior"], params["location"], 1.0)
            s.observe("x", dist.Normal(u, NOISE), OBSERVED)

        def guide(s: sy.State) -> None:
            program(s, params["logit"], params["mean"], jnp.exp(params["scale"]))

        return sy.propose(model, guide, objective=objective)

    def negative_elbo(params: Params) -> Any:
        absent = (
            log_bernoulli(0, params["prior"]) + log_normal(OBSERVED, 0.0, NOISE) - log_bernoulli(0, params["logit"])
        )
        log_q = log_normal(GRID, params["mean"], jnp.exp(params["scale"]))
        log_p = log_normal(GRID, params["location"], 1.0) + log_normal(OBSERVED, GRID, NOISE)
        present = log_bernoulli(1, params["prior"]) - log_bernoulli(1, params["logit"])
        present = present + jnp.sum(jnp.exp(log_q) * (log_p - log_q)) * STEP
        return -jax.nn.sigmoid(-params["logit"]) * absent - jax.nn.sigmoid(params["logit"]) * present

    return Mixed(build, {**MODEL, "logit": 1.3, "mean": -0.4, "scale": 0.2}, negative_elbo)
