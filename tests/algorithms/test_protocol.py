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
from tests.algorithms.problem import CASES, PARAMS, Params, annealing, filtering, log_evidence, model

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

    def loss(params: Params) -> tuple[Any, sy.Evaluation]:
        out = sy.evaluate(build(params), KEY, particles=16)
        return jnp.asarray(out.loss), out

    gradient, out = jax.jit(jax.grad(loss, has_aux=True))(jax.tree.map(jnp.asarray, PARAMS))
    for density, g in gradient.items():
        assert np.isfinite(g).all(), density
        if density == "path" and name == "avo":
            # Its two levels have the same particles without weights, so that their gradients cancel.
            np.testing.assert_allclose(g, 0.0, atol=1e-5)
        else:
            assert np.all(g != 0) == np.any(g != 0) == (density in learned), density
    losses = [float(level.loss) for level in out.levels]
    assert sum(x != 0 for x in losses) == levels
    np.testing.assert_allclose(out.loss, sum(losses), rtol=1e-5)


@pytest.mark.parametrize(
    ("plain", "trained"),
    [
        ("importance", ["svi", "iwae", "rws"]),
        ("ais", ["avo", "nvi", "nvi forward"]),
        ("gibbs", ["apg"]),
    ],
)
def test_training_changes_neither_samples_nor_weights(plain: str, trained: list[str]) -> None:
    # Two draw their ancestors in the same way here, whatever the cases above do.
    method = {"method": "multinomial"} if plain == "gibbs" else {}
    expected = sy.evaluate(CASES[plain].build(PARAMS), KEY, particles=10)
    for name in trained:
        build = sweeping_with(method) if method else CASES[name].build
        out = sy.evaluate(build(PARAMS), KEY, particles=10)
        np.testing.assert_array_equal(out.log_weight, expected.log_weight)
        for address in ("z1", "z2"):
            np.testing.assert_array_equal(out.trace[address], expected.trace[address])


def sweeping_with(options: dict[str, Any]) -> Any:
    from tests.algorithms.problem import sweeping

    return sweeping(algorithms.apg, **options)


def test_filters_agree() -> None:
    outs = [
        sy.evaluate(filtering(f, method="residual")(PARAMS), KEY, particles=10)
        for f in (algorithms.smc, algorithms.vsmc, algorithms.nasmc)
    ]
    for out in outs[1:]:
        np.testing.assert_array_equal(out.log_weight, outs[0].log_weight)
        np.testing.assert_array_equal(out.trace["z2"], outs[0].trace["z2"])


def test_losses_that_are_bounds() -> None:
    for name in ("iwae", "vsmc"):
        out = sy.evaluate(CASES[name].build(PARAMS), KEY, particles=10)
        np.testing.assert_allclose(out.loss, -out.log_z, rtol=1e-5)
    for name in ("svi", "avo"):
        out = sy.evaluate(CASES[name].build(PARAMS), KEY, particles=10)
        np.testing.assert_allclose(out.loss, -out.log_weight.mean(), rtol=1e-5)


def test_resampling_is_after_all_but_the_last_level() -> None:
    labels = [
        level.label.split("(")[0]
        for level in sy.evaluate(CASES["nvi resampling"].build(PARAMS), KEY, particles=4).levels
    ]
    assert labels == ["propose", "resample", "propose"]
    labels = [level.label.split("(")[0] for level in sy.evaluate(CASES["nvi"].build(PARAMS), KEY, particles=4).levels]
    assert labels == ["propose", "propose"]


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


def test_options_of_resample_are_checked() -> None:
    with pytest.raises(sy.ArgumentError, match="threshold"):
        filtering(algorithms.vsmc, threshold=0.5)(PARAMS)
    with pytest.raises(sy.ArgumentError, match="threshold"):
        annealing(algorithms.nvi, threshold=1.5)(PARAMS)
    with pytest.raises(sy.ArgumentError, match="method"):
        filtering(algorithms.smc, method="unheard of")(PARAMS)
