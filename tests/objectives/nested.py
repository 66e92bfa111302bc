"""One level of nested variational inference, discrete and continuous, and its divergences without sampling.

    start -> before = gamma_{k-1}, proposed from start; forward -> after = gamma_k, with the reverse kernel

Every density is asymmetric and has parameters of its own. `before` and `after` are not normalised.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from tests.objectives.densities import log_bernoulli, log_normal
from tests.objectives.estimates import Build, Finite, Objective, Params, exact_gradient


class Tables(NamedTuple):
    """Log densities at [x_before, x_after]: where particles come from, gamma_{k-1} q_k and gamma_k r_k."""

    proposal: Any
    check: Any
    hat: Any


class Nested(NamedTuple):
    """A level, its parameters, and its densities on all states or on a grid."""

    build: Build
    params: Params
    tables: Callable[[Params], Tables]


def level(params: Params, density: Any, kernel: Any, start: Any, objective: Objective) -> Any:
    """The level under test: its incoming particles are weighted, and detached."""
    incoming = sy.detach(sy.propose(density(params["before"]), start))
    target = sy.extend(density(params["after"]), sy.prev(kernel(params["reverse"])))
    return sy.propose(target, sy.move(kernel(params["forward"]), incoming), objective=objective)


def divergence(log_p: Any, log_q: Any) -> Any:
    """KL(p || q) of two densities on the same states, after normalising both."""
    log_p, log_q = log_p - jax.nn.logsumexp(log_p), log_q - jax.nn.logsumexp(log_q)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q))


# Discrete: x in {0, 1} before and after, four states of a particle, 2 x_before + x_after.
START = 0.4


def _discrete_level(params: Params, objective: Objective) -> Any:
    def density(energy: Any) -> Any:
        def program(s: sy.State) -> Any:
            x = s.sample("x", dist.Bernoulli(0.5))
            s.factor("energy", energy[x] + jnp.log(2.0))
            return x

        return program

    def kernel(logits: Any) -> Any:
        return lambda s, x: s.sample("x", dist.Bernoulli(logits=logits[x]))

    return level(params, density, kernel, lambda s: s.sample("x", dist.Bernoulli(START)), objective)


def _discrete_tables(params: Params) -> Tables:
    def kernel(logits: Any) -> Any:
        return jnp.stack([log_bernoulli(0, logits), log_bernoulli(1, logits)], axis=-1)

    start, forward = jnp.log(jnp.array([[1 - START], [START]])), kernel(params["forward"])
    return Tables(
        start + forward, params["before"][:, None] + forward, params["after"][None, :] + kernel(params["reverse"]).T
    )


DISCRETE = Nested(
    _discrete_level,
    {
        "before": np.array([0.3, -0.4]),
        "after": np.array([-0.3, 0.4]),
        "forward": np.array([0.3, -0.5]),
        "reverse": np.array([-0.3, 0.6]),
    },
    _discrete_tables,
)
FINITE = Finite(
    DISCRETE.build, lambda t: 2 * t[sy.previous("x")] + t["x"], lambda p: _discrete_tables(p).proposal.ravel()
)


# Continuous: x on the line before and after.
GRID = np.linspace(-7.0, 7.0, 281)


def _continuous_level(params: Params, objective: Objective) -> Any:
    def density(shape: Any) -> Any:
        def program(s: sy.State) -> Any:
            x = s.sample("x", dist.Normal(shape[0], 1.1))
            s.factor("energy", shape[1] * jnp.tanh(1.5 * x))
            return x

        return program

    def kernel(shape: Any) -> Any:
        return lambda s, x: s.sample("x", dist.Normal(shape[0] + shape[1] * x, jnp.exp(shape[2])))

    return level(params, density, kernel, lambda s: s.sample("x", dist.Normal(0.1, 1.3)), objective)


def _continuous_tables(params: Params) -> Tables:
    def density(shape: Any) -> Any:
        return log_normal(GRID, shape[0], 1.1) + shape[1] * jnp.tanh(1.5 * GRID)

    def kernel(shape: Any) -> Any:
        """At [given, sampled]."""
        return log_normal(GRID[None, :], shape[0] + shape[1] * GRID[:, None], jnp.exp(shape[2]))

    forward = kernel(params["forward"])
    return Tables(
        log_normal(GRID, 0.1, 1.3)[:, None] + forward,
        density(params["before"])[:, None] + forward,
        density(params["after"])[None, :] + kernel(params["reverse"]).T,
    )


CONTINUOUS = Nested(
    _continuous_level,
    {
        "before": np.array([0.5, -0.6]),
        "after": np.array([-0.6, 0.8]),
        "forward": np.array([0.6, 0.3, 0.4]),
        "reverse": np.array([-0.6, 0.6, -0.2]),
    },
    _continuous_tables,
)


@cache
def exact(problem: Literal["discrete", "continuous"]) -> dict[str, Params]:
    """The gradients of KL(check || hat), KL(hat || check), -log Z_k, and of the unweighted E[-log v]."""

    def unweighted(tables: Tables) -> Any:
        return jnp.sum(jnp.exp(tables.proposal - jax.nn.logsumexp(tables.proposal)) * (tables.check - tables.hat))

    _, params, tables = {"discrete": DISCRETE, "continuous": CONTINUOUS}[problem]
    names = ("check_hat", "hat_check", "evidence", "unweighted")

    def quantities(params: Params) -> Any:
        t = tables(params)
        evidence = -jax.nn.logsumexp(t.hat)
        return jnp.stack([divergence(t.check, t.hat), divergence(t.hat, t.check), evidence, unweighted(t)])

    jacobian = exact_gradient(quantities, params)
    return {name: {density: g[i] for density, g in jacobian.items()} for i, name in enumerate(names)}
