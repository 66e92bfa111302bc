"""Orderings of variance that theory predicts."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard import objectives
from tests.objectives import discrete
from tests.objectives.estimates import Build, Objective, Params, run, run_all
from tests.objectives.test_wrong_variants import bound

# The posterior of z is Normal(0.8, 0.2): the guide can be exact.
OPTIMUM: Params = {"mean": 0.8, "scale": 0.5 * np.log(0.2)}


def conjugate(change: Callable[[Any], Any] = lambda f: f) -> Build:
    def build(params: Params, objective: Objective) -> Any:
        def model(s: sy.State) -> None:
            s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 0.5), 1.0)

        def guide(s: sy.State) -> None:
            s.sample("z", dist.Normal(params["mean"], jnp.exp(params["scale"])))

        return sy.propose(model, change(guide), objective=objective)

    return build


def variances(gradient: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(g.astype(float).var(ddof=1).sum()) for name, g in gradient.items()}


@pytest.mark.parametrize("distance", [0.0, 0.05])
def test_stick_the_landing_is_below_elbo_near_the_optimum(distance: float) -> None:
    params = {name: value + distance for name, value in OPTIMUM.items()}
    plain, stuck = (
        variances(run(conjugate(change), params, objectives.elbo, particles=4, runs=2**12).gradient)
        for change in (lambda f: f, sy.stick_the_landing)
    )
    for name in params:
        assert stuck[name] < 0.1 * plain[name], (name, stuck, plain)
        if distance == 0:
            assert stuck[name] < 1e-8 < plain[name], (name, stuck, plain)


def test_dreg_is_below_iwae_and_improves_with_particles() -> None:
    params: Params = {"mean": 0.5, "scale": -0.5}
    both = {"iwae": objectives.iwae, "dreg": objectives.dreg}
    ratios: dict[tuple[str, int], float] = {}
    for particles in (4, 64):
        found = run_all(conjugate(), params, both, particles=particles, runs=2**12)
        for name, (_, gradient, _) in found.items():
            ratios[name, particles] = abs(gradient["mean"].mean()) / gradient["mean"].std()
        for name in params:
            variance = {objective: variances(f.gradient)[name] for objective, f in found.items()}
            assert variance["dreg"] < 0.7 * variance["iwae"], (name, particles, variance)
    # The signal-to-noise ratio of iwae falls with the number of particles, that of dreg rises.
    assert ratios["iwae", 64] < ratios["iwae", 4]
    assert ratios["dreg", 64] > ratios["dreg", 4]


@pytest.mark.parametrize("particles", [2, 8])
def test_baselines_reduce_the_variance_of_score_functions(particles: int) -> None:
    every = {
        "elbo": objectives.elbo,
        "iwae": objectives.iwae,
        "vimco": objectives.vimco,
        "elbo without baseline": bound(False, baseline="none"),
        "iwae without baseline": bound(True, baseline="none"),
    }
    found = run_all(discrete.ONE_LEVEL.build, discrete.PARAMS, every, particles=particles, runs=2**13)
    for name, without in (("elbo", "elbo"), ("iwae", "iwae"), ("vimco", "iwae")):
        lower, upper = variances(found[name].gradient), variances(found[f"{without} without baseline"].gradient)
        for density in ("guide", "guide_flag"):
            assert lower[density] < 0.5 * upper[density], (name, density, lower, upper)
