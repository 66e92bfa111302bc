"""avo, and what reverse_kl and forward_kl are given other than one kernel on weighted, detached particles."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from steelyard import objectives
from tests.objectives import nested
from tests.objectives.densities import log_normal
from tests.objectives.estimates import (
    Objective,
    Params,
    Runs,
    check_average,
    exact_gradient,
    run,
    run_all,
)

# The first level of a path: what comes in is a sample of a normalised density, which learns as well.
FIRST: Params = {"start": np.array([0.6, 0.4]), "forward": np.array([0.3, 0.3]), "reverse": np.array([-0.5, -0.2])}


def first_level(params: Params, objective: Objective) -> Any:
    def start(s: sy.State) -> Any:
        return s.sample("x", dist.Normal(params["start"][0], jnp.exp(params["start"][1])))

    def after(s: sy.State) -> Any:
        x = s.sample("x", dist.Normal(-0.3, 1.2))
        s.factor("energy", 0.7 * jnp.tanh(x))
        return x

    def kernel(shape: Any) -> Any:
        return lambda s, x: s.sample("x", dist.Normal(shape[0] + 0.5 * x, jnp.exp(shape[1])))

    target = sy.extend(after, sy.prev(kernel(params["reverse"])))
    return sy.propose(target, sy.move(kernel(params["forward"]), sy.detach(start)), objective=objective)


def first_tables(params: Params) -> tuple[Any, Any]:
    grid = nested.GRID

    def kernel(shape: Any) -> Any:
        return log_normal(grid[None, :], shape[0] + 0.5 * grid[:, None], jnp.exp(shape[1]))

    start = log_normal(grid, params["start"][0], jnp.exp(params["start"][1]))
    after = log_normal(grid, -0.3, 1.2) + 0.7 * jnp.tanh(grid)
    return start[:, None] + kernel(params["forward"]), after[None, :] + kernel(params["reverse"]).T


def test_first_level_learns_its_initial_density() -> None:
    both = {"check_hat": objectives.reverse_kl, "hat_check": objectives.forward_kl}
    found = run_all(first_level, FIRST, both, particles=2**14, runs=64)
    check_average(found["check_hat"], exact_gradient(lambda p: nested.divergence(*first_tables(p)), FIRST))
    check_average(found["hat_check"], exact_gradient(lambda p: nested.divergence(*first_tables(p)[::-1]), FIRST))


# A proposal that observes: its density is not normalised, and its parameters change the incoming weights.
OBSERVING: Params = {"mean": 0.9, "noise": 0.6}


def observing(params: Params, objective: Objective) -> Any:
    def model(s: sy.State) -> None:
        s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.3, 1.0)), 0.7), 1.4)

    def guide(s: sy.State) -> None:
        s.observe("y", dist.Normal(s.sample("z", dist.Normal(params["mean"], 1.1)), params["noise"]), -0.4)

    return sy.propose(model, guide, objective=objective)


@cache
def observing_runs() -> dict[str, Runs]:
    every = {f.__name__: f for f in (objectives.reverse_kl, objectives.forward_kl, objectives.wake_phi, objectives.apg)}
    return run_all(observing, OBSERVING, every, particles=2**14, runs=64)


# The target has bounded support: some of the particles that a normal guide proposes have weight zero.
BOUNDED: Params = {"mean": 0.4, "scale": 0.2, "noise": 0.9}


def bounded(params: Params, objective: Objective) -> Any:
    def model(s: sy.State) -> None:
        s.observe("x", dist.Normal(s.sample("z", dist.Uniform(0.0, 2.0)), params["noise"]), 1.7)

    def guide(s: sy.State) -> None:
        s.sample("z", dist.Normal(params["mean"], jnp.exp(params["scale"])))

    return sy.propose(model, guide, objective=objective)


def test_particles_of_weight_zero_do_not_count() -> None:
    inside = np.linspace(0.0, 2.0, 2001)

    def quantity(params: Params) -> Any:
        guide = log_normal(inside, params["mean"], jnp.exp(params["scale"]))
        model = log_normal(1.7, inside, params["noise"])
        posterior = jax.lax.stop_gradient(jax.nn.softmax(model))
        return -jnp.sum(posterior * guide) - jax.nn.logsumexp(model)

    found = run(bounded, BOUNDED, objectives.rws, particles=2**14, runs=64)
    check_average(found, exact_gradient(quantity, BOUNDED))


def assert_finite(found: dict[str, Runs]) -> None:
    for name, (loss, gradient, _) in found.items():
        assert np.isfinite(loss).all(), name
        assert all(np.isfinite(g).all() for g in gradient.values()), name
