"""The methods of the table, at tiny size."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import steelyard as sy
from steelyard.experiments.annealing.methods import METHODS, find, program
from steelyard.experiments.annealing.model import Sampler, annealed
from steelyard.experiments.annealing.train import HASTE


def gradient(name: str) -> Any:
    method = METHODS[name]

    def loss(learned: Any, rest: Any, key: Any) -> Any:
        q = program(method, eqx.combine(learned, rest), resampling=method.resampling)
        return sy.evaluate(q, key, particles=12).loss

    learned, rest = eqx.partition(Sampler.start(jax.random.key(0), 4), eqx.is_inexact_array)
    compiled = jax.jit(lambda learned, key: jax.grad(loss)(learned, rest, key), compiler_options=HASTE)
    return compiled(learned, jax.random.key(1))


@pytest.mark.parametrize("name", METHODS)
def test_gradients_are_finite_and_reach_what_is_learned_and_nothing_else(name: str) -> None:
    found = gradient(name)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found))
    for kernel in (found.forward, found.reverse):
        assert np.all(np.any(np.asarray(kernel.moments.weight) != 0, axis=(1, 2))), "a level does not learn"
    assert bool(np.all(np.asarray(found.logits) != 0)) == METHODS[name].learned
    assert bool(np.any(np.asarray(found.logits) != 0)) == METHODS[name].learned


def test_without_resampling_avo_is_the_algorithm_of_that_name() -> None:
    def both(key: Any) -> Any:
        sampler = Sampler.start(key, 3)
        over = (sampler.schedule(learned=False), (sampler.forward, sampler.reverse))
        ours = program(METHODS["AVO"], sampler, resampling=False)
        theirs = sy.algorithms.avo(annealed, lambda kernels: kernels, over)
        return [(out.log_weight, out.loss) for out in (sy.evaluate(q, key, particles=5) for q in (ours, theirs))]

    ours, theirs = jax.jit(both, compiler_options=HASTE)(jax.random.key(2))
    np.testing.assert_allclose(np.asarray(ours[0]), np.asarray(theirs[0]), rtol=1e-6)
    assert float(ours[1]) == pytest.approx(float(theirs[1]), rel=1e-6)


def test_methods_come_in_the_order_of_the_table_and_once() -> None:
    assert [method.name for method in find(["NVIR*", "AVO", "NVIR*"])] == ["AVO", "NVIR*"]


def test_an_unknown_method_is_named_with_those_that_there_are() -> None:
    with pytest.raises(sy.ArgumentError, match=r"no method 'SMC'.*AVO, NVI, NVIR, NVI\*, NVIR\*"):
        find(["SMC"])
