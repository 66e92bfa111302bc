"""The ring, the path of densities, and the kernels before training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steelyard as sy
from steelyard.experiments.annealing.evaluation import mode_weight
from steelyard.experiments.annealing.model import CENTERS, LOG_Z, MODES, Kernel, Sampler, annealed, initial, log_ring
from steelyard.experiments.annealing.train import HASTE

LINE, STEP = np.linspace(-20.0, 20.0, 401, retstep=True)
GRID = jnp.asarray(np.stack(np.meshgrid(LINE, LINE), axis=-1).reshape(-1, 2))


def test_the_ring_integrates_to_eight() -> None:
    total = np.sum(np.exp(np.asarray(jax.vmap(log_ring)(GRID), float))) * STEP**2
    assert np.log(total) == pytest.approx(LOG_Z, abs=1e-4)


def test_the_ring_is_the_same_at_every_centre() -> None:
    heights = np.exp(np.asarray(jax.vmap(log_ring)(CENTERS)))
    np.testing.assert_allclose(heights, 1 / np.pi, rtol=1e-4)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_path_interpolates(beta: float) -> None:
    x = jnp.array([3.0, -4.0])
    expected = (1 - beta) * initial.log_prob(x).sum() + beta * log_ring(x)
    found = sy.log_density(annealed(jnp.asarray(beta)), {"x": x})
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_a_kernel_starts_as_a_step_of_unit_variance() -> None:
    kernel, x = Kernel(jax.random.key(3)), jnp.array([1.5, -2.0])
    value = jnp.array([0.7, -1.1])
    found = sy.log_density(lambda s: kernel(s, x), {"x": value})
    expected = -0.5 * np.sum((np.asarray(value) - np.asarray(x)) ** 2) - np.log(2 * np.pi)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("densities", [2, 6])
def test_a_schedule_starts_linear(densities: int) -> None:
    def schedule(key: Any) -> Any:
        return Sampler.start(key, densities).schedule(learned=True)

    betas = jax.jit(schedule, compiler_options=HASTE)(jax.random.key(0))
    np.testing.assert_allclose(np.asarray(betas), np.linspace(0, 1, densities), atol=1e-6)


def test_samples_count_for_the_nearest_mode() -> None:
    weights = jnp.array([0.1, 0.2, 0.7])
    found = mode_weight(CENTERS[jnp.array([0, 5, 5])] + 0.5, weights)
    np.testing.assert_allclose(np.asarray(found), np.bincount([0, 5, 5], [0.1, 0.2, 0.7], MODES), atol=1e-6)
