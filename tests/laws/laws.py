"""The laws that every program obeys, each as a function of an example that raises where it does not hold."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import steelyard as sy
from steelyard import objectives
from steelyard.types import EngineName
from tests.laws.comparison import assert_same, log_density, trace_of
from tests.laws.finite import Table
from tests.laws.scans import changed
from tests.laws.strategies import Example
from tests.laws.structure import keeps

PARTICLES = 6  # where nothing is enumerated: more than the examples were drawn for, and a multiple of their islands
OBJECTIVES = (
    None,
    objectives.elbo,
    objectives.iwae,
    objectives.rws,
    objectives.reverse_kl,
    objectives.forward_kl,
    objectives.avo,
    objectives.apg,
    objectives.dreg,
)


def proper_weighting(example: Example, engine: EngineName) -> None:
    """E[w_l 1(tau_l = t)] = gamma(t) for each particle l and each trace t."""
    sy.testing.assert_properly_weighted(example.q, example.argument, particles=example.particles, engine=engine)


def engines_agree(example: Example, seed: int) -> sy.Evaluation | None:
    """With the same key both engines give the same particles, whose densities are those that `log_density` tells.

    Returns:
        The particles; None, where all their weights are zero.
    """
    with jax.enable_x64(True):
        vectorized, universal = (_evaluate(example, seed, engine) for engine in ("vectorized", "universal"))
        if vectorized is None or universal is None:
            assert vectorized is universal
            return None
        assert_same(vectorized, universal)
        _assert_same_levels(vectorized, universal)
        _assert_same_history(vectorized, universal)
        # The density of a filter is an integral over all that it dropped.
        if not keeps(example.q):
            _assert_density_of_traces(example, vectorized)
            _assert_reuses_its_trace(example, vectorized, "vectorized")
            _assert_reuses_its_trace(example, universal, "universal")
        return vectorized


def passes_change_nothing(example: Example, seed: int) -> None:
    """Particles, losses and gradients are the same, whether the passes of the compiler run or not."""
    objective = OBJECTIVES[seed % len(OBJECTIVES)]

    def run(tilt: Any, optimize: bool) -> Any:
        q = changed(example.q, lambda table: Table(table.statements, table.returns, table.shift, tilt), {})
        key = jax.random.key(seed)
        out = sy.evaluate(q, key, example.argument, particles=PARTICLES, objective=objective, optimize=optimize)
        return out.loss + out.log_z, out

    def result(optimize: bool) -> Any:
        try:
            return jax.value_and_grad(run, has_aux=True)(0.3, optimize)
        except (sy.ArgumentError, sy.WeightError) as refused:
            return str(refused)

    with jax.enable_x64(True):
        optimized, plain = result(True), result(False)
        if isinstance(optimized, str) or isinstance(plain, str):
            assert optimized == plain
            return
        ((_, ours), our_slope), ((_, theirs), their_slope) = optimized, plain
        assert_same(ours, theirs)
        # Where no particle has a weight there is no result to compare: outside of a transformation it is an error.
        if np.isneginf(theirs.log_weight).all():
            return
        _assert_same_levels(ours, theirs)
        np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-9, atol=1e-9)
        # Where weights are zero, gradients of their logarithms are of the form inf - inf.
        if np.isfinite(theirs.log_weight).all():
            np.testing.assert_allclose(our_slope, their_slope, rtol=1e-8, atol=1e-8)


def _evaluate(example: Example, seed: int, engine: Any, given: Any = None) -> sy.Evaluation | None:
    """Return None where no particle has a weight, which is an error."""
    key = jax.random.key(seed)
    try:
        return sy.evaluate(example.q, key, example.argument, particles=PARTICLES, given=given, engine=engine)
    except sy.WeightError:
        return None


def _assert_same_levels(one: sy.Evaluation, other: sy.Evaluation) -> None:
    """A loop stacks the levels of its steps, so that they come in another order."""
    left, right = map(_columns, (one, other))
    assert left.keys() == right.keys()
    for label, numbers in left.items():
        np.testing.assert_allclose(numbers, right[label], rtol=1e-9, atol=1e-9, err_msg=label)


def _columns(out: sy.Evaluation) -> dict[str, np.ndarray]:
    columns = defaultdict(list)
    for level in out.levels:
        numbers = [level.log_z_increment, level.ess, level.max_weight, level.ancestors, level.loss]
        columns[level.label].append(np.stack([np.ravel(x) for x in np.broadcast_arrays(*numbers)]))
    return {label: np.sort(np.concatenate(numbers, axis=1)) for label, numbers in columns.items()}


def _assert_same_history(one: sy.Evaluation, other: sy.Evaluation) -> None:
    assert (one.kept is None) == (other.kept is None)
    if one.kept is not None:
        left, right = one.trajectories(), other.trajectories()
        assert left.keys() == right.keys()
        for a in left:
            np.testing.assert_array_equal(left[a], right[a], err_msg=a)


def _assert_density_of_traces(example: Example, out: sy.Evaluation) -> None:
    for l, expected in enumerate(log_density(out)):
        trace = trace_of(out, l)
        found = sy.log_density(example.q, trace, example.argument)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=str(trace))


def _assert_reuses_its_trace(example: Example, out: sy.Evaluation, engine: Any) -> None:
    """Under substitution of a whole trace all variables count as if they were observed: the weight is the density."""
    again = _evaluate(example, 0, engine, given=out.trace)
    expected = log_density(out)
    if again is None:
        assert np.isneginf(expected).all()
    else:
        np.testing.assert_allclose(again.log_weight, expected, rtol=1e-9, atol=1e-12)


LAWS: dict[str, Callable[[Example, int], object]] = {
    "proper weighting, universal": lambda example, seed: proper_weighting(example, "universal"),
    "proper weighting, vectorized": lambda example, seed: proper_weighting(example, "vectorized"),
    "engines agree": engines_agree,
    "passes change nothing": passes_change_nothing,
}
