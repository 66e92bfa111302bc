"""What the program before the first step observes is a part of a filter's loss, in value and in gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.algorithms import nasmc, smc, vsmc

YS = jnp.array([0.3, -0.2, 0.9])
PARAMS = {"start": 0.4, "noise": 0.7, "gain": 0.3, "slope": 0.8}
KEY = jax.random.key(4)


def first(params: Any, t: Any = "") -> Any:
    def f(s: sy.State) -> Any:
        z = s.sample(f"z{t}", dist.Normal(params["start"], 1.0))
        s.observe(f"y{t}", dist.Normal(z, params["noise"]), 1.2)
        return z

    return f


def transition(params: Any, y: Any, t: Any = "") -> Any:
    def f(s: sy.State, z: Any) -> Any:
        z = s.sample(f"z{t}", dist.Normal(params["slope"] * z, 0.6))
        s.observe(f"y{t}", dist.Normal(z, 0.5), y)
        return z

    return f


def guide(params: Any, y: Any, t: Any = "") -> Any:
    return lambda s, z: s.sample(f"z{t}", dist.Normal(z + params["gain"] * (y - z), 0.5))


def looped(method: Any, initial: Any = first) -> Any:
    def build(params: Any) -> Any:
        steps, guides = (lambda y, f=f: f(params, y) for f in (transition, guide))
        return method(steps, guides, YS, initial=initial(params))

    return build


def written_out(method: Any) -> Any:
    def build(params: Any) -> Any:
        steps = [first(params, 0), *(transition(params, y, t + 1) for t, y in enumerate(YS))]
        guides = [first(params, 0), *(guide(params, y, t + 1) for t, y in enumerate(YS))]
        return method(steps, guides)

    return build


def run(build: Any, of: Any = lambda out: out.loss, particles: int = 50) -> Any:
    def number(params: Any) -> Any:
        out = sy.evaluate(build(params), KEY, particles=particles)
        return jnp.asarray(of(out)), out.log_z

    (value, log_z), gradient = jax.value_and_grad(number, has_aux=True)(jax.tree.map(jnp.float32, PARAMS))
    return float(value), float(log_z), gradient


@pytest.mark.parametrize("method", [vsmc, nasmc])
def test_a_loop_has_the_loss_of_its_steps_written_out(method: Any) -> None:
    value, log_z, gradient = run(looped(method))
    expected, expected_log_z, slopes = run(written_out(method))
    np.testing.assert_allclose([value, log_z], [expected, expected_log_z], rtol=1e-4)
    for name, slope in slopes.items():
        assert abs(slope) > 1e-3, name
        np.testing.assert_allclose(gradient[name], slope, rtol=2e-3, atol=1e-4, err_msg=name)


def test_the_loss_of_variational_smc_is_its_bound() -> None:
    """With the gradient of log Z itself, which leaves out the score of the ancestors as well."""
    value, log_z, gradient = run(looped(vsmc))
    np.testing.assert_allclose(value, -log_z, rtol=1e-5)
    _, _, slopes = run(looped(smc), of=lambda out: -out.log_z)
    for name, slope in slopes.items():
        np.testing.assert_allclose(gradient[name], slope, rtol=2e-3, atol=1e-4, err_msg=name)


STARTS: dict[str, Any] = {
    "a propose": lambda p: sy.propose(first(p), lambda s: s.sample("z", dist.Normal(0.5, 0.9))),
    "a resample": lambda p: sy.resample(first(p)),
    "a rename": lambda p: sy.rename(first(p, 7), {"z7": "z", "y7": "y"}),
    "its own objective": lambda p: sy.propose(first(p), first(p), objective=sy.objectives.iwae),
}


@pytest.mark.parametrize("name", list(STARTS))
def test_whatever_program_comes_first(name: str) -> None:
    value, log_z, gradient = run(looped(vsmc, STARTS[name]))
    np.testing.assert_allclose(value, -log_z, rtol=1e-5)
    assert abs(gradient["noise"]) > 0.01
    # nasmc's loss is a bound and divergences, and every level has a part.
    out = sy.evaluate(looped(nasmc, STARTS[name])(PARAMS), KEY, particles=50)
    assert out.levels[0].loss != 0


def test_wake_updates_of_the_first_program_follow_the_evidence() -> None:
    """With many particles: the gradient of -log p(y_0) by the parameters of the first program, which nothing else has."""
    gradient = run(looped(nasmc), particles=200_000)[2]["noise"]
    evidence = lambda noise: -dist.Normal(0.4, jnp.sqrt(1.0 + noise**2)).log_prob(1.2)  # noqa: E731
    np.testing.assert_allclose(gradient, jax.grad(evidence)(0.7), atol=0.01)


@pytest.mark.parametrize("method", [vsmc, nasmc])
def test_what_would_leave_something_out_is_refused(method: Any) -> None:
    steps = [first(PARAMS, 0)]
    with pytest.raises(sy.ArgumentError, match="threshold"):
        method(steps, steps, threshold=0.5)
    with pytest.raises(sy.ArgumentError, match="trains proposals"):
        method(steps, None)
    for options in ({"initial": first(PARAMS)}, {"over": YS}, {"keep": ["z"]}):
        with pytest.raises(sy.ArgumentError, match="go with functions"):
            method(steps, steps, **options)
