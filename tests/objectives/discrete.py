"""Discrete problems: a program, and tables of its densities written without the library."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from tests.objectives.densities import log_bernoulli, log_normal
from tests.objectives.estimates import Finite, Objective, Params


def average_over_outcomes(log_probability: Any, particles: int, loss: Callable[[Any], Any]) -> Any:
    """The expectation of a function of the states of all particles, over every joint outcome."""
    outcomes = np.array(list(itertools.product(range(len(log_probability)), repeat=particles)))
    return jnp.sum(jnp.exp(log_probability[outcomes].sum(-1)) * jax.vmap(loss)(outcomes))


# One level: a latent class z in {0, 1, 2} and a flag c in {0, 1}; six states of a particle, 2 z + c.
PARAMS: Params = {
    "prior": np.array([0.2, -0.5, 0.4]),
    "flag": 0.7,
    "mean": np.array([-0.8, 0.3, 1.5]),
    "guide": np.array([-0.3, 0.6, 0.1]),
    "guide_flag": np.array([0.4, -0.9, 0.2]),
}
DATUM, SHIFT, SCALE = 0.9, 0.6, 0.7


def _one_level(params: Params, objective: Objective) -> Any:
    def model(s: sy.State) -> None:
        z = s.sample("z", dist.Categorical(logits=params["prior"]))
        c = s.sample("c", dist.Bernoulli(logits=params["flag"] * (z - 0.5)))
        s.observe("x", dist.Normal(params["mean"][z] + SHIFT * c, SCALE), DATUM)

    def guide(s: sy.State) -> None:
        z = s.sample("z", dist.Categorical(logits=params["guide"]))
        s.sample("c", dist.Bernoulli(logits=params["guide_flag"][z]))

    return sy.propose(model, guide, objective=objective)


def _log_guide(params: Params) -> Any:
    z, c = np.divmod(np.arange(6), 2)
    return jax.nn.log_softmax(params["guide"])[z] + log_bernoulli(c, params["guide_flag"][z])


def expected_loss(params: Params, particles: int, loss: Callable[[Any], Any]) -> Any:
    """The expectation of a function of the log weights."""
    z, c = np.divmod(np.arange(6), 2)
    log_p = jax.nn.log_softmax(params["prior"])[z] + log_bernoulli(c, params["flag"] * (z - 0.5))
    log_p = log_p + log_normal(DATUM, params["mean"][z] + SHIFT * c, SCALE)
    log_q = _log_guide(params)
    return average_over_outcomes(log_q, particles, lambda states: loss((log_p - log_q)[states]))


ONE_LEVEL = Finite(_one_level, lambda t: 2 * t["z"] + t["c"], _log_guide)

# Variables of one side only: the guide samples (a, z) and the model (z, c); eight states, 4 a + 2 z + c.
SIDES: Params = {"a": 0.4, "z": np.array([-0.6, 0.5]), "prior": -0.3, "c": np.array([0.8, -0.4]), "shift": 1.1}


def _one_sided(params: Params, objective: Objective) -> Any:
    def model(s: sy.State) -> None:
        z = s.sample("z", dist.Bernoulli(logits=params["prior"]))
        c = s.sample("c", dist.Bernoulli(logits=params["c"][z]))
        s.observe("x", dist.Normal(z + params["shift"] * c, SCALE), DATUM)

    def guide(s: sy.State) -> None:
        a = s.sample("a", dist.Bernoulli(logits=params["a"]))
        s.sample("z", dist.Bernoulli(logits=params["z"][a]))

    return sy.propose(model, guide, objective=objective)


def _sides() -> Any:
    return np.unravel_index(np.arange(8), (2, 2, 2))


def _log_sides(params: Params) -> Any:
    a, z, c = _sides()
    log_q = log_bernoulli(a, params["a"]) + log_bernoulli(z, params["z"][a])
    return log_q + log_bernoulli(c, params["c"][z])


def one_sided_loss(params: Params, particles: int, loss: Callable[[Any], Any]) -> Any:
    """The expectation of a function of the log weights, p(z) p(x | z, c) / q(z | a)."""
    a, z, c = _sides()
    log_w = log_bernoulli(z, params["prior"]) - log_bernoulli(z, params["z"][a])
    log_w = log_w + log_normal(DATUM, z + params["shift"] * c, SCALE)
    return average_over_outcomes(_log_sides(params), particles, lambda states: loss(log_w[states]))


ONE_SIDED = Finite(_one_sided, lambda t: 4 * t["a"] + 2 * t["z"] + t["c"], _log_sides)

# Two levels in sequence: z1, and then z2 given z1; four states, 2 z1 + z2.
STEPS: Params = {"first": 0.5, "second": np.array([-0.7, 0.3]), "prior": -0.4, "jump": 0.9}


def _sequence(params: Params, objective: Objective) -> Any:
    def first(s: sy.State) -> Any:
        return s.sample("z1", dist.Bernoulli(logits=params["prior"]))

    def second(s: sy.State, z1: Any) -> None:
        z2 = s.sample("z2", dist.Bernoulli(logits=params["jump"] * (2 * z1 - 1)))
        s.observe("x", dist.Normal(z1 + 0.5 * z2, SCALE), DATUM)

    guide1 = lambda s: s.sample("z1", dist.Bernoulli(logits=params["first"]))  # noqa: E731
    guide2 = lambda s, z1: s.sample("z2", dist.Bernoulli(logits=params["second"][z1]))  # noqa: E731
    one = sy.propose(first, guide1, objective=objective)
    return sy.compose(sy.propose(second, guide2, objective=objective), one)


def _log_steps(params: Params) -> Any:
    z1, z2 = np.divmod(np.arange(4), 2)
    return log_bernoulli(z1, params["first"]) + log_bernoulli(z2, params["second"][z1])


def sequence_loss(params: Params, particles: int, loss: Callable[[Any], Any]) -> Any:
    """The expectation of the sum of the losses of both levels."""
    z1, z2 = np.divmod(np.arange(4), 2)
    log_w1 = log_bernoulli(z1, params["prior"]) - log_bernoulli(z1, params["first"])
    log_w2 = log_bernoulli(z2, params["jump"] * (2 * z1 - 1)) - log_bernoulli(z2, params["second"][z1])
    log_w2 = log_w2 + log_normal(DATUM, z1 + 0.5 * z2, SCALE)
    return average_over_outcomes(_log_steps(params), particles, lambda s: loss(log_w1[s]) + loss(log_w2[s]))


SEQUENCE = Finite(_sequence, lambda t: 2 * t["z1"] + t["z2"], _log_steps)
