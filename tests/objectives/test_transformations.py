"""detach and stick_the_landing: the same samples and weights; gradients as documented."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard import objectives
from tests.objectives.estimates import Params
from tests.objectives.test_levels import assert_same_particles

KEY = jax.random.key(5)
PARAMS: Params = {"prior": 0.4, "guide": np.array([-0.3, 0.2]), "kernel": np.array([0.5, -0.1])}


def model(params: Params) -> Any:
    def program(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(params["prior"], 1.0))
        s.observe("x", dist.Normal(z, 0.7), 1.1)
        return z

    return program


def guide(params: Params) -> Any:
    return lambda s: s.sample("z", dist.Normal(params["guide"][0], jnp.exp(params["guide"][1])))


def kernel(params: Params) -> Any:
    return lambda s, z: s.sample("z", dist.Normal(params["kernel"][0] * z, jnp.exp(params["kernel"][1])))


PROGRAMS: dict[str, Callable[[Params], Any]] = {
    "primitive": guide,
    "renamed": lambda p: sy.rename(guide(p), {"z": "y"}),
    "observing": model,
    "propose": lambda p: sy.propose(model(p), guide(p)),
    "resample": lambda p: sy.resample(sy.propose(model(p), guide(p))),
    "compose": lambda p: sy.compose(sy.rename(kernel(p), {"z": "y"}), sy.propose(model(p), guide(p))),
    "move": lambda p: sy.move(kernel(p), sy.resample(sy.propose(model(p), guide(p)))),
    "extend": lambda p: sy.extend(model(p), sy.prev(kernel(p))),
}


def gradient(build: Callable[[Params], Any], quantity: Callable[[sy.Evaluation], Any], size: int = 2) -> Params:
    return jax.grad(lambda p: quantity(sy.evaluate(build(p), KEY, particles=size)))(jax.tree.map(jnp.asarray, PARAMS))


def is_zero(gradient: Params) -> bool:
    return not any(np.any(g) for g in gradient.values())


def density_at(build: Callable[[Params], Any], out: sy.Evaluation) -> Params:
    """The gradient of the log density that a program denotes, at the traces of some particles."""

    def total(params: Params) -> Any:
        traces = [out.trace.of_particle(l) for l in range(out.particles)]
        return sum(sy.log_density(build(params), trace) for trace in traces)

    return jax.grad(total)(jax.tree.map(jnp.asarray, PARAMS))


def joint(out: sy.Evaluation) -> Any:
    return sum(jnp.sum(rho) for rho in out.log_density.values())


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_detach_stops_all_gradients_but_those_of_densities(name: str) -> None:
    build = PROGRAMS[name]
    detached = lambda p: sy.detach(build(p))  # noqa: E731
    out = sy.evaluate(detached(PARAMS), KEY, particles=2)
    assert_same_particles(sy.evaluate(build(PARAMS), KEY, particles=2), out)
    np.testing.assert_array_equal(out.value, sy.evaluate(build(PARAMS), KEY, particles=2).value)

    def values(out: sy.Evaluation) -> Any:
        return jnp.sum(out.value) + sum(jnp.sum(value) for value in out.trace.values())

    assert not is_zero(gradient(build, values))
    assert is_zero(gradient(detached, values))
    found, expected = gradient(detached, joint), density_at(build, out)
    assert not is_zero(expected)
    for density in PARAMS:
        np.testing.assert_allclose(found[density], expected[density], rtol=1e-4, atol=1e-5, err_msg=density)


@pytest.mark.parametrize("name", ["propose", "resample", "compose", "move", "extend"])
def test_weights_leave_a_detached_inference_program_without_gradients(name: str) -> None:
    weight = lambda out: jnp.sum(out.log_weight)  # noqa: E731
    assert not is_zero(gradient(PROGRAMS[name], weight))
    assert is_zero(gradient(lambda p: sy.detach(PROGRAMS[name](p)), weight))


def test_levels_inside_a_detached_program_still_learn() -> None:
    inner = lambda p: sy.propose(model(p), guide(p), objective=objectives.elbo)  # noqa: E731
    outer = lambda p: sy.move(kernel(p), sy.detach(inner(p)))  # noqa: E731
    plain, detached = (gradient(build, lambda out: out.loss) for build in (inner, outer))
    assert not is_zero(plain)
    for density in PARAMS:
        np.testing.assert_allclose(detached[density], plain[density], err_msg=density)


def test_a_detached_target_leaves_the_path_of_its_proposal() -> None:
    """The target draws nothing here, so that there is nothing in it to detach."""
    build = lambda p, change: sy.propose(change(model(p)), guide(p), objective=objectives.elbo)  # noqa: E731
    plain = gradient(lambda p: build(p, lambda f: f), lambda out: out.loss)
    detached = gradient(lambda p: build(p, sy.detach), lambda out: out.loss)
    for density in PARAMS:
        np.testing.assert_allclose(detached[density], plain[density], err_msg=density)


@pytest.mark.parametrize("objective", [objectives.wake_phi, objectives.rws, objectives.forward_kl])
def test_a_level_held_fixed_has_no_gradient_through_its_arguments(objective: Any) -> None:
    """Detached or not, the second guide must not teach the first one through the value that it is called with."""

    def build(params: Params, change: Callable[[Any], Any]) -> Any:
        def target(s: sy.State, z: Any) -> None:
            s.observe("x", dist.Normal(s.sample("y", dist.Normal(params["prior"] + z, 1.0)), 0.7), 1.1)

        proposal = change(sy.rename(kernel(params), {"z": "y"}))
        return sy.compose(sy.propose(target, proposal, objective=objective), guide(params))

    plain = gradient(lambda p: build(p, lambda f: f), lambda out: out.loss)
    detached = gradient(lambda p: build(p, sy.detach), lambda out: out.loss)
    assert np.any(plain["kernel"]) and not np.any(plain["guide"])
    for density in PARAMS:
        np.testing.assert_allclose(detached[density], plain[density], rtol=1e-5, atol=1e-6, err_msg=density)


def test_stick_the_landing_stops_the_parameters_and_leaves_the_path() -> None:
    stuck = lambda p: sy.stick_the_landing(guide(p))  # noqa: E731
    out = sy.evaluate(stuck(PARAMS), KEY, particles=2)
    assert_same_particles(sy.evaluate(guide(PARAMS), KEY, particles=2), out)
    for quantity in (lambda out: jnp.sum(out.value), lambda out: jnp.sum(out.trace["z"] ** 2)):
        for density, expected in gradient(guide, quantity).items():
            np.testing.assert_array_equal(gradient(stuck, quantity)[density], expected)
    # d/dz log q(z) dz/d(mean, log scale) at z = mean + scale e, with the parameters of the density held.
    mean, scale = PARAMS["guide"][0], np.exp(PARAMS["guide"][1])
    noise = (np.asarray(out.trace["z"]) - mean) / scale
    expected = np.array([np.sum(-noise / scale), np.sum(-(noise**2))])
    np.testing.assert_allclose(gradient(stuck, joint)["guide"], expected, rtol=1e-4)
    # Without it the scale of the density moves along with the values.
    np.testing.assert_allclose(gradient(guide, joint)["guide"], [0.0, -2.0], atol=1e-4)


def test_stick_the_landing_of_an_inference_program_is_an_error() -> None:
    with pytest.raises(sy.GrammarError, match="stick_the_landing"):
        sy.stick_the_landing(sy.propose(model(PARAMS), guide(PARAMS)))


def test_transformations_reach_the_primitive_program_of_a_kernel() -> None:
    for change in (sy.detach, sy.stick_the_landing):
        for wrap in (sy.prev, lambda f: sy.rename(f, {"z": "y"})):
            assert change(wrap(kernel(PARAMS))) is not None
        f = kernel(PARAMS)
        assert change(sy.prev(f)) == sy.prev(change(f))
