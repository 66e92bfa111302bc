"""Every algorithm keeps the same promises: properly weighted particles, and gradients for what it learns."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard import algorithms
from tests.algorithms.problem import CASES, PARAMS, Params, annealing, filtering, log_evidence, model, sweeping

KEY = jax.random.key(11)


def test_every_algorithm_is_here() -> None:
    names = {name for name, f in vars(algorithms).items() if inspect.isfunction(f)}
    assert names == {case.split()[0] for case in CASES}


@pytest.mark.parametrize("name", list(CASES))
def test_evidence(name: str) -> None:
    q = CASES[name].build(PARAMS)
    evidence = sy.testing.check_evidence(q, log_evidence(PARAMS), key=KEY, particles=400, runs=100)
    assert abs(evidence.z_score) <= 4


@pytest.mark.parametrize("name", list(CASES))
def test_gradients_and_losses(name: str) -> None:
    build, learned, levels = CASES[name]

    def loss(params: Params) -> tuple[Any, Any]:
        out = sy.evaluate(build(params), KEY, particles=16)
        return jnp.asarray(out.loss), (out.loss, [level.loss for level in out.levels])

    options = {"xla_backend_optimization_level": 0}
    gradient, (whole, losses) = jax.jit(jax.grad(loss, has_aux=True), compiler_options=options)(as_arrays(PARAMS))
    for density, g in gradient.items():
        assert np.isfinite(g).all(), density
        if density == "path" and name == "avo":
            # Its two levels have the same particles without weights, so that their gradients cancel.
            np.testing.assert_allclose(g, 0.0, atol=1e-5)
        else:
            assert np.all(g != 0) == np.any(g != 0) == (density in learned), density
    # The levels of a scan are stacked.
    each = np.concatenate([np.ravel(x) for x in losses])
    assert np.sum(each != 0) == levels
    np.testing.assert_allclose(whole, each.sum(), rtol=1e-5)


def as_arrays(params: Params) -> Params:
    return jax.tree.map(jnp.asarray, params)


def assert_same_particles(outs: list[sy.Evaluation]) -> None:
    for out in outs[1:]:
        np.testing.assert_array_equal(out.log_weight, outs[0].log_weight)
        for address in outs[0].trace:
            np.testing.assert_array_equal(out.trace[address], outs[0].trace[address])


@pytest.mark.parametrize(
    "names", [["importance", "svi", "iwae", "rws"], ["ais", "avo", "nvi", "nvi forward"]], ids=lambda names: names[0]
)
def test_training_changes_neither_samples_nor_weights(names: list[str]) -> None:
    assert_same_particles([sy.evaluate(CASES[name].build(PARAMS), KEY, particles=10) for name in names])


def test_training_a_filter_changes_neither_samples_nor_weights() -> None:
    every = (algorithms.smc, algorithms.vsmc, algorithms.nasmc)
    builds = [filtering(algorithm, method="residual") for algorithm in every]
    assert_same_particles([sy.evaluate(build(PARAMS), KEY, particles=10) for build in builds])


def test_training_sweeps_changes_neither_samples_nor_weights() -> None:
    builds = [sweeping(algorithm, threshold=0.9) for algorithm in (algorithms.gibbs, algorithms.apg)]
    # Operation by operation: compiled as a whole, two loops may round the last digit differently.
    with jax.disable_jit():
        assert_same_particles([sy.evaluate(build(PARAMS), KEY, particles=10) for build in builds])


def test_losses_that_are_bounds() -> None:
    for name in ("iwae", "vsmc"):
        out = sy.evaluate(CASES[name].build(PARAMS), KEY, particles=10)
        np.testing.assert_allclose(out.loss, -out.log_z, rtol=1e-5)
    for name in ("svi", "avo"):
        out = sy.evaluate(CASES[name].build(PARAMS), KEY, particles=10)
        np.testing.assert_allclose(out.loss, -out.log_weight.mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("nvi", ["propose", "propose"]),
        ("nvi resampling", ["resample", "propose", "resample", "propose"]),
        ("smc", ["resample"]),
        ("vsmc", ["propose", "resample", "propose"]),
        ("apg", ["propose"] + ["resample", "propose"] * 2),
    ],
)
def test_resampling_is_after_all_but_the_last_level(name: str, labels: list[str]) -> None:
    out = jax.eval_shape(lambda key: sy.evaluate(CASES[name].build(PARAMS), key, particles=4), KEY)
    assert [level.label.split("(")[0] for level in out.levels] == labels


@pytest.mark.parametrize("algorithm", [algorithms.ais, algorithms.avo, algorithms.nvi])
@pytest.mark.parametrize(("targets", "pairs"), [(2, 2), (2, 0), (3, 1), (0, 0)])
def test_one_pair_of_kernels_for_each_target(algorithm: Any, targets: int, pairs: int) -> None:
    def kernel(s: sy.State, z: Any) -> Any:
        return s.sample("z", dist.Normal(z, 1.0))

    with pytest.raises(sy.ArgumentError, match="kernels"):
        algorithm([model(PARAMS)] * targets, [(kernel, kernel)] * pairs)


@pytest.mark.parametrize("algorithm", [algorithms.smc, algorithms.vsmc, algorithms.nasmc])
@pytest.mark.parametrize(("steps", "proposals"), [(2, 1), (1, 2), (0, 0), (2, 0)])
def test_one_proposal_for_each_step(algorithm: Any, steps: int, proposals: int) -> None:
    with pytest.raises(sy.ArgumentError, match="proposal"):
        algorithm([model(PARAMS)] * steps, [model(PARAMS)] * proposals)


@pytest.mark.usefixtures("as_users_run_it")
def test_options_of_resample_are_checked() -> None:
    with pytest.raises(sy.ArgumentError, match="threshold"):
        filtering(algorithms.vsmc, threshold=0.5)(PARAMS)
    with pytest.raises(sy.ArgumentError, match="threshold"):
        annealing(algorithms.nvi, threshold=1.5)(PARAMS)
    with pytest.raises(sy.ArgumentError, match="method"):
        filtering(algorithms.smc, method="unheard of")(PARAMS)
