"""elbo, iwae and dreg with continuous and mixed variables: expected gradients against quadrature."""

from collections.abc import Callable
from typing import Any

import jax
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard import objectives
from tests.objectives import continuous
from tests.objectives.estimates import Objective, Params, Runs, check_average, exact_gradient, run, run_all
from tests.objectives.test_bounds_discrete import evidence_bound, importance_weighted_bound


@pytest.mark.parametrize(
    "change", [lambda f: f, sy.detach, sy.stick_the_landing], ids=["pathwise", "score_function", "stick_the_landing"]
)
def test_elbo_of_a_continuous_guide(change: Callable[[Any], Any]) -> None:
    exact = exact_gradient(lambda p: continuous.expected_loss(p, 1, evidence_bound), continuous.PARAMS)
    build = continuous.proposal(change)
    check_average(run(build, continuous.PARAMS, objectives.elbo, particles=3, runs=2**16), exact)


@pytest.mark.parametrize(
    "problem", [continuous.discrete_first, continuous.continuous_first, continuous.sometimes_present]
)
def test_elbo_mixes_pathwise_and_score_function_gradients(problem: Callable[..., continuous.Mixed]) -> None:
    build, params, negative_elbo = problem()
    found = run(build, params, objectives.elbo, particles=4, runs=2**16)
    check_average(found, exact_gradient(negative_elbo, params))


def test_landing_is_stuck_only_where_there_is_a_path() -> None:
    build, params, negative_elbo = continuous.discrete_first(sy.stick_the_landing)
    found = run(build, params, objectives.elbo, particles=4, runs=2**16)
    check_average(found, exact_gradient(negative_elbo, params))


@pytest.mark.parametrize(
    ("objective", "change"),
    [(objectives.iwae, lambda f: f), (objectives.iwae, sy.detach), (objectives.dreg, lambda f: f)],
    ids=["iwae", "iwae_score_function", "dreg"],
)
def test_importance_weighted_bound_of_two_particles(objective: Objective, change: Callable[[Any], Any]) -> None:
    exact = exact_gradient(lambda p: continuous.expected_loss(p, 2, importance_weighted_bound), continuous.PARAMS)
    found = run(continuous.proposal(change), continuous.PARAMS, objective, particles=2, runs=2**18)
    check_average(found, exact)


# The guide samples (a, z) and the model (z, u): u comes from the prior, and a is left out of the weight.
SIDES: Params = {"a": -0.5, "z": 0.9, "u": 0.6, "prior": -0.4}


def one_sided(params: Params, objective: Objective) -> Any:
    def model(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(params["prior"], 1.0))
        u = s.sample("u", dist.Normal(params["u"], 0.8))
        s.observe("x", dist.Normal(z + u + 0.2 * z * u, 0.9), 1.6)

    def guide(s: sy.State) -> None:
        a = s.sample("a", dist.Normal(params["a"], 0.7))
        s.sample("z", dist.Normal(0.5 * a - params["z"], 1.1))

    return sy.propose(model, guide, objective=objective)


def test_dreg_is_iwae_in_expectation_with_variables_of_one_side_only() -> None:
    both = {"dreg": objectives.dreg, "iwae": objectives.iwae}
    found = run_all(one_sided, SIDES, both, particles=3, runs=2**16)
    dreg, iwae = found["dreg"].gradient, found["iwae"].gradient
    # On the same particles the difference is less noisy than either; the average of iwae sets the scale.
    paired = {name: dreg[name] - iwae[name] + iwae[name].mean() for name in SIDES}
    check_average(Runs(found["dreg"].loss, paired, {}), {name: iwae[name].mean() for name in SIDES})


@pytest.mark.parametrize(
    "guide",
    [
        lambda s: s.sample("z", dist.Normal(0.3 * s.sample("coin", dist.Bernoulli(0.4)), 1.0)),
        sy.detach(lambda s: s.sample("z", dist.Normal(0.0, 1.0))),
        sy.propose(lambda s: s.sample("z", dist.Normal(0.0, 1.0)), lambda s: s.sample("z", dist.Normal(0.0, 1.0))),
        lambda s: s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), 0.3),
    ],
    ids=["discrete", "detached", "weighted", "observing"],
)
def test_dreg_says_what_it_cannot_do(guide: Any) -> None:
    q = sy.propose(lambda s: s.sample("z", dist.Normal(0.0, 1.0)), guide, objective=objectives.dreg)
    with pytest.raises(sy.ArgumentError, match="dreg"):
        sy.evaluate(q, jax.random.key(0), particles=2)
