"""Training: what learns, what is recorded, and that seeds do not mix."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.experiments.annealing.evaluation import evaluate, sample
from steelyard.experiments.annealing.settings import Cell
from steelyard.experiments.annealing.train import HASTE, History, Pace, start, train
from tests.experiments.conftest import Made

CELL = Cell("NVIR*", 3, 2, 3, 12, batches=2)


def test_only_methods_with_a_star_learn_the_schedule(made: Made) -> None:
    for result in made.results:
        betas = np.asarray(jax.vmap(lambda sampler: sampler.schedule(learned=False))(result.samplers))
        assert (betas[:, 1] != 0.5).all() == result.cell.kind.learned
        assert (betas[:, 1] != 0.5).any() == result.cell.kind.learned


def test_every_kernel_learns(made: Made) -> None:
    seeds = jnp.arange(2)
    before = jax.jit(jax.vmap(lambda seed: start(seed, 3)), compiler_options=HASTE)(seeds)
    for result in made.results:
        for old, new in ((before.forward, result.samplers.forward), (before.reverse, result.samplers.reverse)):
            changed = np.asarray(old.moments.weight) != np.asarray(new.moments.weight)
            assert changed.any(axis=(2, 3)).all()


def test_history_is_of_every_seed_and_finite(made: Made) -> None:
    for result in made.results:
        assert {x.shape for x in result.history} == {(2, 1)}
        assert np.isfinite(result.history).all()
        assert not result.history.skipped.any()
        assert len(set(result.history.log_z[:, 0].tolist())) == 2, "two seeds, one run"


def test_training_is_the_same_again_and_goes_on_in_windows(made: Made) -> None:
    reports: list[tuple[int, History]] = []
    samplers, history = train(CELL, lambda steps, history: reports.append((steps, history)))
    for found, expected in zip(jax.tree.leaves(samplers), jax.tree.leaves(made.results[1].samplers), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    _, longer = train(replace(CELL, steps=150), lambda steps, history: reports.append((steps, history)))
    assert [steps for steps, _ in reports] == [3, 100, 150]
    assert longer.log_z.shape == (2, 2)
    assert history.log_z.shape == (2, 1)


def test_parameters_are_averaged_over_the_last_steps() -> None:
    first, second, both, last = (
        jax.tree.leaves(train(replace(CELL, steps=steps, average=average))[0])
        for steps, average in ((100, 0.0), (200, 0.0), (200, 1.0), (200, 0.5))
    )
    for one, two, mean, end in zip(first, second, both, last, strict=True):
        assert (np.asarray(one) != np.asarray(two)).any()
        np.testing.assert_allclose(np.asarray(mean), (np.asarray(one) + np.asarray(two)) / 2, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(np.asarray(end), np.asarray(two))


@pytest.mark.parametrize("resampling", [False, True])
def test_metrics_are_averages_over_batches_of_the_seed_s_own_sampler(made: Made, resampling: bool) -> None:
    result = made.results[1]
    # Compiled twice, in two ways: of 1,000 particles one would have another ancestor, by rounding.
    cell = replace(result.cell, samples=20) if resampling else result.cell
    run = jax.jit(lambda sampler, key: sample(sampler, key, cell.samples, resampling=resampling))
    recorded, again, metrics = (
        result.metrics(resampling=resampling),
        evaluate(result.cell, result.samplers, resampling=resampling),
        evaluate(cell, result.samplers, resampling=resampling),
    )
    np.testing.assert_array_equal(recorded.log_z, again.log_z)
    for seed in range(2):
        sampler = jax.tree.map(lambda x, seed=seed: x[seed], result.samplers)
        key = jax.random.fold_in(jax.random.key(seed), 2)
        outs = [run(sampler, jax.random.fold_in(key, i)) for i in range(2)]
        assert float(outs[0].log_z) != float(outs[1].log_z)
        np.testing.assert_allclose(metrics.log_z[seed], np.mean([out.log_z for out in outs]), rtol=1e-4)
        np.testing.assert_allclose(metrics.ess[seed], np.mean([out.ess for out in outs]), rtol=1e-3)


def test_a_learning_rate_that_decays_ends_at_zero() -> None:
    def rates(*, decays: bool) -> list[float]:
        pace = Pace(*map(jnp.asarray, (True, 5e-3, decays, 200)))
        return [float(pace.rate(jnp.asarray(step))) for step in (0, 50, 100, 199)]

    np.testing.assert_allclose(rates(decays=False), [5e-3] * 4, rtol=1e-6)
    found = rates(decays=True)
    np.testing.assert_allclose(found[:3], [5e-3, 5e-3 * (0.5 + 0.5 * np.sqrt(0.5)), 2.5e-3], rtol=1e-5)
    assert 0 < found[3] < 1e-6


def test_the_learning_rate_is_the_method_s() -> None:
    """After one step of Adam every parameter with a gradient has moved by the learning rate."""
    moved = {}
    for method in ("NVIR*", "NVIR*+"):
        cell = replace(CELL, method=method, steps=1)
        samplers, _ = train(cell)
        before = jax.jit(jax.vmap(lambda seed: start(seed, 3)), compiler_options=HASTE)(jnp.arange(2))
        moved[method] = np.abs(np.asarray(samplers.logits) - np.asarray(before.logits)).max()
    np.testing.assert_allclose([moved["NVIR*"], moved["NVIR*+"]], [1e-3, 5e-3], rtol=1e-2)
