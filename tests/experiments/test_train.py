"""Training: what learns, what is recorded, and that seeds do not mix."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.experiments.annealing.settings import Cell
from steelyard.experiments.annealing.train import HASTE, History, start, train
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
            changed = np.asarray(old.offset.weight) != np.asarray(new.offset.weight)
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
