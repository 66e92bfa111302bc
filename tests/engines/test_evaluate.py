"""The arguments of `evaluate`, evaluation under substitution, and questions that need no sampling."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, run, universal

normal = dist.Normal


def model(s: sy.State, x: Any) -> jax.Array:
    z = s.sample("z", normal(0.5, 2.0))
    v = s.sample("v", normal(z, 1.0))
    s.observe("x", normal(v, 0.5), x)
    return v


def guide(s: sy.State, x: Any) -> None:
    s.sample("z", normal(x, 1.0))


def kernel(s: sy.State, v: jax.Array) -> jax.Array:
    return s.sample("v", normal(0.5 * v, 1.5))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "words of another kind of key": ({"key": jnp.zeros(4, jnp.uint32)}, r"key made by jax\.random\.key"),
    "words that are signed": ({"key": jnp.zeros(2, jnp.int32)}, r"key made by jax\.random\.key"),
    "half a chunk": ({"chunk": 2.5}, r"chunk is a positive number.*got 2\.5"),
    "no chunk": ({"chunk": 0}, "chunk is a positive number"),
    "objective by name": ({"objective": "elbo"}, r"objective=sy\.objectives\.elbo, got 'elbo'"),
    "seed for a key": ({"key": 0}, r"key made by jax\.random\.key"),
    "many keys": ({"key": jax.random.split(KEY, 2)}, r"one key made by jax\.random\.key"),
    "no particles": ({"particles": 0}, "particles is a positive number"),
    "negative": ({"particles": -3}, "particles is a positive number"),
    "true": ({"particles": True}, "particles is a positive number"),
    "too many": ({"particles": 2**31}, r"particles is at most 2\^31 - 1, got 2,147,483,648"),
    "half a particle": ({"particles": 2.5}, "particles is a positive number"),
    "traced": ({"particles": jnp.array(3)}, "particles is a positive number, known before running"),
    "engine": ({"engine": "steam"}, '"vectorized" or "universal"'),
    "given without an axis": ({"given": {"z": 1.0}}, r"given\['z'\] has shape \(\).*axis of 3 particles.*broadcast_to"),
    "given with another axis": ({"given": {"z": jnp.zeros(4)}}, r"given\['z'\] has shape \(4,\).*3 particles"),
    "given per component": ({"given": {"z": jnp.zeros((2, 3))}}, r"given\['z'\] has shape \(2, 3\)"),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    options, message = WRONG[name]
    options = {"key": KEY, "particles": 3, **options}
    with pytest.raises(sy.ArgumentError, match=message):
        sy.evaluate(model, options.pop("key"), 0.3, **options)


def test_the_universal_engine_refuses_traced_values() -> None:
    with pytest.raises(sy.ArgumentError, match="universal.*jit"):
        jax.jit(lambda key: sy.evaluate(model, key, 0.3, particles=2, engine="universal").log_weight)(KEY)


def test_a_given_value_of_another_shape() -> None:
    for engine in ("vectorized", "universal"):
        with pytest.raises(sy.AddressError, match=r"model \(.*'z' has shape \(2,\).*shape \(\)"):
            sy.evaluate(model, KEY, 0.3, particles=3, given={"z": jnp.zeros((3, 2))}, engine=engine)  # pyright: ignore


def test_inference_programs_under_substitution_are_their_targets() -> None:
    z, v = jnp.array([0.1, -2.0]), jnp.array([1.0, 0.7])
    expected = normal(0.5, 2.0).log_prob(z) + normal(z, 1.0).log_prob(v) + normal(v, 0.5).log_prob(0.3)
    q = sy.resample(sy.propose(model, guide))
    for out in (
        run(q, 0.3, particles=2, given={"z": z, "v": v}),
        universal(q, 0.3, particles=2, given={"z": z, "v": v}),
    ):
        np.testing.assert_allclose(out.log_weight, expected, rtol=1e-5)
        np.testing.assert_allclose(out.value, v, rtol=1e-6)
        assert out.levels == ()


def test_a_trace_with_absent_variables_can_be_given_again() -> None:
    def optional(s: sy.State) -> None:
        with s.when(s.sample("flag", dist.Bernoulli(0.5)) == 1):
            s.sample("z", normal(0.0, 1.0))

    out = run(optional, particles=8)
    total = sum(np.asarray(rho) for rho in out.log_density.values())
    assert 0 < np.asarray(out.trace.present("z")).sum() < 8
    np.testing.assert_allclose(run(optional, particles=8, given=out.trace).log_weight, total, rtol=1e-5)
    one_by_one = universal(optional, particles=8, given=out.trace)
    np.testing.assert_allclose(one_by_one.log_weight, total, rtol=1e-5)
    assert isinstance(one_by_one.log_weight, np.ndarray)


def test_log_density_is_that_of_the_target() -> None:
    def density(z: Any, v: Any) -> Any:
        return normal(0.5, 2.0).log_prob(z) + normal(z, 1.0).log_prob(v) + normal(v, 0.5).log_prob(0.3)

    at = {"z": 0.2, "v": -0.4}
    for q in (
        model,
        sy.propose(model, guide),
        sy.resample(model),
        sy.propose(sy.extend(model, sy.prev(kernel)), model),
    ):
        np.testing.assert_allclose(sy.log_density(q, at, 0.3), density(0.2, -0.4), rtol=1e-5)
    moved = {"z": 0.2, sy.previous("v"): -0.4, "v": 1.1}
    expected = density(0.2, -0.4) + normal(0.5 * -0.4, 1.5).log_prob(1.1)
    np.testing.assert_allclose(sy.log_density(sy.move(kernel, model), moved, 0.3), expected, rtol=1e-5)
    extended = sy.extend(model, sy.prev(kernel))
    expected = density(0.2, 1.1) + normal(0.5 * 1.1, 1.5).log_prob(-0.4)
    np.testing.assert_allclose(sy.log_density(extended, moved, 0.3), expected, rtol=1e-5)
    renamed = sy.rename(model, {"z": "v", "v": "z"})
    np.testing.assert_allclose(sy.log_density(renamed, at, 0.3), density(-0.4, 0.2), rtol=1e-5)


def test_log_density_under_transformations() -> None:
    def density(z: Any, v: Any) -> Any:
        return sy.log_density(model, {"z": z, "v": v}, 0.3)

    z = jnp.array([0.2, 1.0, -3.0])
    batch = jax.jit(jax.vmap(density, in_axes=(0, None)))(z, 0.7)
    np.testing.assert_allclose(batch, [density(x, 0.7) for x in z], rtol=1e-5)
    np.testing.assert_allclose(jax.grad(density)(0.2, 0.7), -(0.2 - 0.5) / 4 + (0.7 - 0.2), rtol=1e-5)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ({"z": 0.0}, r"log_density of model: the trace has no value for 'v'\. The program samples 'v', 'z'"),
        ({"z": 0.0, "v": 0.0, "u": 0.0}, "the program does not sample 'u'"),
        ({"z": 0.0, "v": 0.0, "x": 0.0}, "the program does not sample 'x'"),
        ({"z": jnp.zeros(2), "v": 0.0}, r"'z' has shape \(2,\)"),
    ],
    ids=["missing", "superfluous", "observed", "shape"],
)
def test_log_density_of_the_wrong_trace(trace: Any, message: str) -> None:
    with pytest.raises(sy.AddressError, match=message):
        sy.log_density(model, trace, 0.3)


def test_addresses_are_found_without_running() -> None:
    def expensive(s: sy.State, data: jax.Array) -> None:
        # Four gigabytes, if it were run.
        z = s.sample("z", normal(jnp.zeros((1_000_000, 1_000)), 1.0))
        with s.when(z[0, 0] > 0):
            s.sample("v", normal(0.0, 1.0))
        s.observe("x", normal(z.sum(), 1.0), data.sum())
        s.factor("f", 0.0)

    found = sy.addresses(expensive, jnp.zeros(3))
    assert found == ({"z", "v"}, {"z", "v", "x", "f"})
    assert found.observed == {"x", "f"}
    assert sy.addresses(sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, model)), 0.3).trace == {"z", "v"}
    assert sy.addresses(sy.move(kernel, model), 0.3).trace == {"z", "v", sy.previous("v")}


def test_different_keys_give_different_particles() -> None:
    one, same, other = (run(model, 0.3, particles=3, key=jax.random.key(i)) for i in (1, 1, 2))
    np.testing.assert_array_equal(one.trace["z"], same.trace["z"])
    assert not np.isin(np.asarray(one.trace["z"]), np.asarray(other.trace["z"])).any()
