"""No axis is guessed: nothing changes where the number of particles happens to be a size of the data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, run, shapes, universal

VECTOR = jnp.array([0.3, -1.0, 2.0, 0.7])
MATRIX = jnp.arange(16.0).reshape(4, 4) / 10 - 0.4
CONSTANT = np.array([4.0, 3.0, 2.0, 1.0])


def model(s: sy.State, vector: jax.Array, matrix: jax.Array) -> dict[str, Any]:
    a = s.sample("a", dist.Normal(0.5, 2.0))
    b = s.sample("b", dist.Normal(a + vector, 1.0))
    c = s.sample("c", dist.Normal(matrix, 0.5).to_event(1))
    s.observe("x", dist.Normal(b, 1.5), vector)
    s.observe("y", dist.Normal(c + matrix.T, 1.0), matrix)
    s.factor("f", jnp.sum(c @ matrix @ b) / 20)
    return {"a": a, "b": b, "data": vector, "mean": matrix.mean(), "constant": CONSTANT, "number": 3.0}


def guide(s: sy.State, vector: jax.Array, matrix: jax.Array) -> None:
    b = s.sample("b", dist.Normal(vector, jnp.array([0.5, 1.0, 1.5, 2.0])))
    s.sample("a", dist.Normal(b.sum() / 4, 1.0))
    s.sample("extra", dist.Normal(matrix, 1.0))


def kernel(s: sy.State, value: dict[str, Any]) -> dict[str, Any]:
    d = s.sample("d", dist.Normal(value["data"] + value["a"], value["constant"]))
    return {"d": d, "data": value["data"], "constant": value["constant"]}


def moved(s: sy.State, value: dict[str, Any]) -> jax.Array:
    return s.sample("b", dist.Normal(value["b"], value["constant"] / 4))


PROGRAMS: dict[str, Any] = {
    "compose": sy.compose(kernel, sy.propose(model, guide)),
    "move": sy.move(moved, model),
}


def first_four(x: Any) -> np.ndarray:
    return np.asarray(x)[:4]


def assert_same(a: sy.Evaluation, b: sy.Evaluation) -> None:
    for left, right in ((a.trace, b.trace), (a.log_density, b.log_density), (a.value, b.value)):
        assert jax.tree.structure(left) == jax.tree.structure(right)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(first_four(x), first_four(y), rtol=2e-5), left, right)
    np.testing.assert_allclose(first_four(a.log_weight), first_four(b.log_weight), rtol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_four_particles_are_the_first_four_of_five(name: str) -> None:
    four, five = (run(PROGRAMS[name], VECTOR, MATRIX, particles=n) for n in (4, 5))
    assert_same(four, five)


def test_the_universal_engine_runs_one_particle_at_a_time() -> None:
    q = PROGRAMS["compose"]
    assert_same(run(q, VECTOR, MATRIX, particles=4), universal(q, VECTOR, MATRIX, particles=4))


def test_a_density_is_the_sum_of_all_that_log_prob_returns() -> None:
    out = run(PROGRAMS["compose"], VECTOR, MATRIX, particles=4)
    b, c = np.asarray(out.trace["b"]), np.asarray(out.trace["c"])
    for l in range(4):
        x = -0.5 * ((np.asarray(VECTOR) - b[l]) / 1.5) ** 2 - np.log(1.5 * np.sqrt(2 * np.pi))
        y = -0.5 * (np.asarray(MATRIX) - c[l] - np.asarray(MATRIX).T) ** 2 - 0.5 * np.log(2 * np.pi)
        np.testing.assert_allclose(out.log_density["x"][l], x.sum(), rtol=1e-5)
        np.testing.assert_allclose(out.log_density["y"][l], y.sum(), rtol=1e-5)


def test_every_array_of_an_evaluation_has_the_particle_axis_first() -> None:
    out = run(PROGRAMS["compose"], VECTOR, MATRIX, particles=1)
    for leaf in jax.tree.leaves((out.trace, out.log_density, out.log_weight, out.value)):
        assert leaf.shape[0] == 1
    np.testing.assert_allclose(out.value["constant"], [CONSTANT])
    np.testing.assert_allclose(out.value["data"], [VECTOR])


# Sizes that no other array has.
DATA = jnp.linspace(-1.0, 1.0, 6 * 11).reshape(6, 11)
PARTICLES = 7


def reader(s: sy.State, data: jax.Array) -> tuple[jax.Array, jax.Array]:
    z = s.sample("z", dist.Normal(data.mean(), 1.0))
    s.observe("x", dist.Normal(z, 1.0), data.sum())
    return z, data


def proposal(s: sy.State, data: jax.Array) -> tuple[jax.Array, jax.Array]:
    return s.sample("z", dist.Normal(data[0, 0], 1.0)), data


def reads_again(s: sy.State, value: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    z, data = value
    return s.sample("u", dist.Normal(z + data[2, 3], 1.0)), data


def updates(s: sy.State, value: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    z, data = value
    return s.sample("z", dist.Normal(z + data[2, 3], 1.0)), data


SHARING: dict[str, Any] = {
    "primitive": reader,
    "resample": sy.resample(reader),
    "compose": sy.compose(reads_again, reader),
    "through resample": sy.resample(sy.compose(reads_again, sy.resample(reader, threshold=0.5))),
    "propose": sy.resample(sy.propose(reader, sy.resample(sy.propose(reader, proposal)))),
    "propose for a kernel": sy.compose(sy.propose(reads_again, lambda s, c: None), sy.resample(reader)),
    "extend and move": sy.propose(sy.extend(reader, sy.prev(updates)), sy.move(updates, sy.resample(reader))),
}


def copies(function: Any) -> list[tuple[int, ...]]:
    """Return the shapes of arrays that hold the data once for each particle."""
    jaxpr = jax.make_jaxpr(function)(KEY, DATA)
    return [shape for shape in shapes(jaxpr) if np.prod(shape) >= PARTICLES * DATA.size]


@pytest.mark.parametrize("name", SHARING)
def test_shared_data_is_never_copied_for_each_particle(name: str) -> None:
    def both(key: jax.Array, data: jax.Array) -> Any:
        return sy.evaluate(SHARING[name], key, data, particles=PARTICLES)

    assert copies(both) == []


def test_the_search_for_copies_finds_one() -> None:
    def copying(s: sy.State, data: jax.Array) -> jax.Array:
        return s.sample("z", dist.Normal(0.0, 1.0)) * data

    assert copies(lambda key, data: sy.evaluate(copying, key, data, particles=PARTICLES).values)
    # Whoever asks for the value gets the particle axis.
    assert copies(lambda key, data: sy.evaluate(reader, key, data, particles=PARTICLES).value)
