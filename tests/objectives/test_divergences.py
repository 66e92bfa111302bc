"""avo, and what reverse_kl and forward_kl are given other than one kernel on weighted, detached particles."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard import objectives
from tests.objectives import nested
from tests.objectives.continuous import GRID
from tests.objectives.densities import log_normal
from tests.objectives.estimates import (
    Objective,
    Params,
    Runs,
    assert_close,
    check_average,
    exact_gradient,
    expectation,
    run,
    run_all,
)


@pytest.mark.parametrize("particles", [1, 2])
def test_avo_with_discrete_kernels(particles: int) -> None:
    """Unbiased with any number of particles: nothing is self-normalised."""
    build, params, _ = nested.DISCRETE
    found = run(build, params, objectives.avo, particles=particles, runs=2**12)
    assert_close(expectation(nested.FINITE, params, found), nested.exact("discrete")["unweighted"])


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


@pytest.mark.parametrize("name", ["reverse_kl", "forward_kl", "wake_phi", "apg"])
def test_proposal_that_observes(name: str) -> None:
    def tables(params: Params) -> tuple[Any, Any]:
        guide = log_normal(GRID, params["mean"], 1.1) + log_normal(-0.4, GRID, params["noise"])
        return guide, log_normal(GRID, 0.3, 1.0) + log_normal(1.4, GRID, 0.7)

    order = 1 if name == "reverse_kl" else -1
    exact = exact_gradient(lambda p: nested.divergence(*tables(p)[::order]), OBSERVING)
    check_average(observing_runs()[name], exact)


def test_renaming_a_proposal_changes_no_gradient() -> None:
    def renamed(params: Params, objective: Objective) -> Any:
        q = nested.DISCRETE.build(params, objective)
        new = {"x": "y", sy.previous("x"): sy.previous("y")}
        reverse = sy.rename(q.p.f.f, {"x": "y"})
        target = sy.extend(sy.rename(q.p.p, {"x": "y"}), sy.prev(reverse))
        return sy.propose(target, sy.rename(q.q, new), objective=objective)

    every = {f.__name__: f for f in (objectives.reverse_kl, objectives.forward_kl, objectives.apg, objectives.avo)}
    params = nested.DISCRETE.params
    plain = run_all(nested.DISCRETE.build, params, every, particles=6, runs=8)
    other = run_all(renamed, params, every, particles=6, runs=8)
    for name in every:
        np.testing.assert_allclose(other[name].loss, plain[name].loss, rtol=1e-5, err_msg=name)
        for density, gradient in plain[name].gradient.items():
            np.testing.assert_allclose(other[name].gradient[density], gradient, atol=1e-5, err_msg=f"{name} {density}")


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


def test_losses_are_finite_with_particles_of_weight_zero() -> None:
    finite = (objectives.iwae, objectives.dreg, objectives.rws, objectives.forward_kl, objectives.apg)
    assert_finite(run_all(bounded, BOUNDED, {f.__name__: f for f in finite}, particles=50, runs=4))


@pytest.mark.filterwarnings("ignore::steelyard.SupportWarning")
def test_losses_are_finite_with_incoming_particles_of_weight_zero() -> None:
    """The reverse kernel goes beyond the support of what came in, as it does before it has learned where that is."""

    def build(params: Params, objective: Objective) -> Any:
        def after(s: sy.State) -> Any:
            return s.sample("z", dist.Normal(params["mean"], 1.0))

        def kernel(s: sy.State, z: Any) -> Any:
            return s.sample("z", dist.Normal(0.5 * z, jnp.exp(params["scale"])))

        before = sy.propose(lambda s: s.sample("z", dist.Uniform(0.0, 2.0)), lambda s: s.sample("z", dist.Normal(0, 1)))
        target = sy.extend(after, sy.prev(kernel))
        return sy.propose(target, sy.move(kernel, sy.detach(before)), objective=objective)

    finite = (objectives.reverse_kl, objectives.forward_kl, objectives.rws)
    assert_finite(run_all(build, BOUNDED, {f.__name__: f for f in finite}, particles=50, runs=4))
