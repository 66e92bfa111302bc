"""The generative model and its proposals are programs that fit together."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steelyard as sy
from steelyard.experiments.tracking import model as tracking
from steelyard.experiments.tracking.model import OneByOne, fits, generative, initial, kernels
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.pixels import LEAST, Shown, log_likelihood, render
from steelyard.experiments.tracking.rendering import correlate, place
from steelyard.experiments.tracking.shapes import images, mean_image
from steelyard.experiments.tracking.videos import simulate

T, D, CANVAS = 2, 2, 40


@pytest.fixture(scope="module")
def networks() -> Networks:
    return Networks(jax.random.key(0), CANVAS)


@pytest.fixture(scope="module")
def frames() -> Any:
    return simulate(jax.random.key(1), 1, objects=D, length=T, canvas=CANVAS).frames[0]


def test_a_wrong_pixel_costs_what_the_table_says() -> None:
    np.testing.assert_allclose(log_likelihood(0.0, 1.0), np.log(LEAST), rtol=1e-3)
    np.testing.assert_allclose(log_likelihood(0.3, 0.6), 0.6 * np.log(0.3) + 0.4 * np.log(0.7), rtol=1e-5)


# Apart, on top of each other to the last digit, overlapping, at whole pixels, at the edges, and beyond them.
PLACES = {
    "apart": [[-0.9, -0.8], [0.7, 0.9], [0.8, -0.6]],
    "the same": [[0.13, 0.2], [0.13, 0.2], [0.13, 0.2]],
    "overlapping": [[0.1, 0.2], [0.3, 0.1], [0.0, -0.1]],
    "whole pixels": [[10 / 34 - 1, 30 / 34 - 1], [11 / 34 - 1, 12 / 34 - 1], [39 / 34 - 1, 30 / 34 - 1]],
    "at the edges": [[-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]],
    "beyond the edges": [[-1.3, 1.4], [1.84, -2.5], [50.0, -1e30]],
}


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_likelihood_by_windows_is_that_of_the_whole_frame(where: list[Any]) -> None:
    """Values and gradients, in objects and positions; the frame shows something else, also where no object is."""
    frame = jnp.clip(jax.random.uniform(jax.random.key(0), (96, 96)) - 0.3, 0.0, 1.0)
    objects, positions = jnp.asarray(images()[[2, 5, 7]]) * 0.7 + 0.01, jnp.asarray(where)

    def direct(objects: Any, positions: Any) -> Any:
        return log_likelihood(render(objects, positions, 96), frame).sum()

    def by_windows(objects: Any, positions: Any) -> Any:
        return Shown(objects, positions, 96).log_prob(frame)

    # At a whole pixel the slope from the left is another than that from the right.
    wanted = 0 if np.isclose((np.asarray(where) + 1) * 34 % 1, 0).any() else (0, 1)
    np.testing.assert_allclose(by_windows(objects, positions), direct(objects, positions), rtol=1e-6)
    for found, exact in zip(
        jax.tree.leaves(jax.grad(by_windows, wanted)(objects, positions)),
        jax.tree.leaves(jax.grad(direct, wanted)(objects, positions)),
        strict=True,
    ):
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4 * float(abs(exact).max() + 1))


def test_a_position_that_is_no_number_has_no_likelihood() -> None:
    d = Shown(jnp.asarray(images()[:2]), jnp.array([[0.1, jnp.nan], [0.2, 0.3]]), 96)
    assert jnp.isnan(d.log_prob(jnp.zeros((96, 96))))


def test_density_of_the_model(networks: Networks, frames: Any) -> None:
    keys = jax.random.split(jax.random.key(2), 3)
    what, where = jax.random.normal(keys[0], (D, 10)), [0.3 * jax.random.normal(k, (D, 2)) for k in keys[1:]]
    trace = {"what": what, "where 0": where[0], "where 1": where[1]}
    found = sy.log_density(generative(networks, frames, D), trace)
    objects = jax.vmap(networks.decoder)(what)
    prior = sum(
        jax.scipy.stats.norm.logpdf(x, m, s).sum()
        for x, m, s in [(what, 0, 1), (where[0], 0, 1), (where[1], where[0], 0.2)]
    )
    likelihood = sum(log_likelihood(render(objects, z, CANVAS), x).sum() for z, x in zip(where, frames, strict=True))
    np.testing.assert_allclose(found, prior + likelihood, rtol=1e-4)


@pytest.mark.parametrize("unroll", [True, False])
def test_objects_are_found_one_after_the_other(networks: Networks, frames: Any, unroll: bool) -> None:
    """Its density is that of its draws, and what the second object is found in depends on the first."""
    average = jnp.broadcast_to(jnp.asarray(mean_image()), (D, 28, 28))
    d = OneByOne(networks.where, frames[0], average, unroll=unroll)
    z = d.sample(jax.random.key(0))
    left, expected = frames[0], []
    for image, at, key in zip(average, z, jax.random.split(jax.random.key(0), D), strict=True):
        mean, scale = networks.where(correlate(left, image))
        np.testing.assert_allclose(at, mean + scale * jax.random.normal(key, (2,)), rtol=1e-4, atol=1e-5)
        expected.append(jax.scipy.stats.norm.logpdf(at, mean, scale).sum())
        left = left - place(image, at, CANVAS)
    np.testing.assert_allclose(d.log_prob(z), sum(expected), rtol=1e-4)


def test_an_update_looks_near_where_an_object_was() -> None:
    """Two places fit equally well; but what is bright and not explained counts against a place, wherever it is."""
    plus, square = jnp.asarray(images()[3]), jnp.asarray(images()[4])
    left, right = jnp.array([-0.5, 0.2]), jnp.array([0.7, 0.2])

    def found(frame: Any, before: Any) -> Any:
        fit = fits(frame, plus, before)
        row, column = np.unravel_index(int(jnp.argmax(fit)), fit.shape)
        return column / 34 - 1, row / 34 - 1

    twice = place(plus, left, 96) + place(plus, right, 96)
    for at in (left, right):
        np.testing.assert_allclose(found(twice, at + 0.05), at, atol=0.1)
    other = place(plus, left, 96) + place(square, right, 96)
    np.testing.assert_allclose(found(other, jnp.array([0.1, 0.2])), left, atol=0.1)
    assert (fits(other, plus, None) == correlate(other, plus)).all()


def test_the_sampler_is_properly_weighted_in_its_pieces(networks: Networks, frames: Any) -> None:
    """Both ways to the same density: every level's weight is that of a propose between the densities of its traces."""
    q = sy.propose(generative(networks, frames, D), initial(networks, frames, D))
    out = sy.evaluate(q, jax.random.key(0), particles=3)
    for l in range(3):
        trace = {a: x[l] for a, x in out.trace.items()}
        target = sy.log_density(generative(networks, frames, D), trace)
        proposal = sy.log_density(initial(networks, frames, D), trace)
        np.testing.assert_allclose(out.log_weight[l], target - proposal, rtol=1e-4)


def test_an_update_of_one_position_costs_one_frame(networks: Networks, frames: Any) -> None:
    needs = sy.dependencies(generative(networks, frames, D))
    assert needs["frame 1"] == {"what", "where 1"}
    assert needs["where 1"] == {"where 0", "where 1"}


def test_gradients_reach_all_networks(networks: Networks, frames: Any) -> None:
    import equinox as eqx

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(networks: Networks) -> Any:
        return sy.evaluate(tracking.sampler(networks, frames, D, sweeps=1), jax.random.key(0), particles=3).loss

    for name, part in vars(gradient(networks)).items():
        leaves = jax.tree.leaves(part)
        assert all(jnp.isfinite(x).all() for x in leaves), name
        assert any((x != 0).any() for x in leaves), name
    assert len(kernels(networks, frames)) == T + 1
    assert images().shape[0] == 9
