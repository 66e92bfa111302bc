"""Evaluations as trees of arrays, and what programs return."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from tests.running import KEY, run, universal


def program(s: sy.State, x: jax.Array) -> dict[str, Any]:
    z = s.sample("z", dist.Normal(x, 1.0))
    with s.when(z > 0):
        s.sample("v", dist.Normal(z, 1.0))
    return {"z": z, "pair": (x, 2 * z), "name": "fixed", "nothing": None}


Q = sy.resample(program)


def test_a_round_trip_through_jit_changes_nothing() -> None:
    out = run(Q, 0.3, particles=4)
    same = jax.jit(lambda e: e)(out)
    assert jax.tree.structure(same) == jax.tree.structure(out)
    jax.tree.map(np.testing.assert_array_equal, out, same)
    assert same.value["name"] == "fixed"
    assert same.value["nothing"] is None
    assert list(same.trace) == ["v", "z"]
    assert repr(same) == repr(out)


def test_leaves_carry_the_names_of_their_addresses() -> None:
    paths = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(run(Q, 0.3, particles=2))[0]
    ]
    assert ".trace['z']" in paths
    assert ".log_density['v']" in paths
    assert any("present(v)" in path for path in paths)


def test_an_evaluation_on_the_host_has_the_same_value() -> None:
    """NumPy arrays do not make it an evaluation of the universal engine."""
    out = run(Q, 0.3, particles=4)
    host = jax.device_get(out)
    assert isinstance(host.log_weight, np.ndarray)
    assert jax.tree.structure(host.value) == jax.tree.structure(out.value)
    np.testing.assert_array_equal(host.value["z"], out.value["z"])
    np.testing.assert_array_equal(host.value["pair"][0], out.value["pair"][0])
    np.testing.assert_allclose(host.expect(lambda t: t["z"]), out.expect(lambda t: t["z"]), rtol=1e-5)
    np.testing.assert_allclose(host.log_z, out.log_z, atol=1e-6)


def test_shapes_without_values_are_a_tree_of_the_same_structure() -> None:
    abstract = jax.eval_shape(lambda key: sy.evaluate(Q, key, 0.3, particles=4), KEY)
    concrete = jax.jit(lambda key: sy.evaluate(Q, key, 0.3, particles=4))(KEY)
    assert jax.tree.structure(abstract) == jax.tree.structure(concrete)
    assert [x.shape for x in jax.tree.leaves(abstract)] == [x.shape for x in jax.tree.leaves(concrete)]


def test_both_engines_return_the_same_kind_of_value() -> None:
    for q in (lambda s: None, lambda s: 3.0, lambda s: {"a": s.sample("z", dist.Normal(0.0, 1.0)), "b": (1, 2.0)}):
        one, other = run(q, particles=3).value, universal(q, particles=3).value
        assert jax.tree.structure(one) == jax.tree.structure(other)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), one, other)


def test_values_that_differ_in_kind_are_kept_as_they_are() -> None:
    def either(s: sy.State) -> Any:
        return (1.0, 2.0) if s.sample("z", dist.Bernoulli(0.5)) == 1 else "none"

    out = universal(either, particles=16)
    flags = np.asarray(out.trace["z"])
    assert 0 < flags.sum() < 16
    assert list(out.value) == [(1.0, 2.0) if flag else "none" for flag in flags]


def test_shared_values_are_shared_and_varying_ones_are_reindexed() -> None:
    def keeps(s: sy.State, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("f", 3 * z)
        return z, x

    data = jnp.array([1.0, 2.0])
    out = sy.evaluate(sy.resample(keeps), KEY, data, particles=5)
    assert out.values.varies == (True, False)
    assert out.values.leaves[1] is data
    np.testing.assert_array_equal(out.value[0], out.trace["z"])
    np.testing.assert_array_equal(out.value[1], np.tile(data, (5, 1)))
