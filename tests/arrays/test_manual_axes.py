"""Evaluations inside of `shard_map`, with its checks on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.sharding import Mesh, PartitionSpec

import steelyard as sy


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Gamma(2.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    return z


def kernel(s: sy.State, z: Any) -> Any:
    return s.sample("z", dist.Gamma(z / 0.2, 5.0))


def level(q: Any, _: Any) -> Any:
    return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(q)))


def step(q: Any, _: Any) -> Any:
    def transition(s: sy.State, z: Any) -> Any:
        s.factor("x", -z)
        return kernel(s, z)

    return sy.move(transition, sy.resample(q, threshold=0.5))


PROGRAMS = {
    "loop": sy.scan(level, model, jnp.arange(3.0)),
    "filter": sy.scan(step, model, jnp.arange(3.0), keep=["z"]),
    "resample": sy.resample(sy.propose(model, model), method="multinomial"),
}


@pytest.mark.parametrize("particles", [10, 200])
@pytest.mark.parametrize("name", PROGRAMS)
def test_shard_map_with_its_default_checks(name: str, particles: int) -> None:
    def one(key: Any, x: Any) -> Any:
        out = sy.evaluate(PROGRAMS[name], key, x, particles=particles, objective=sy.objectives.iwae)
        return (out.log_z, out.trajectories()["z"].mean()) if name == "filter" else (out.log_z, out.loss)

    def batch(keys: Any, xs: Any) -> Any:
        return jax.vmap(one)(keys, xs), jax.grad(lambda xs: jax.vmap(one)(keys, xs)[0].sum())(xs)

    mesh, spec = Mesh(np.array(jax.devices()[:1]), ("data",)), PartitionSpec("data")
    inputs = jax.random.split(jax.random.key(0), 2), jnp.array([0.5, 1.5])
    found = jax.jit(jax.shard_map(batch, mesh=mesh, in_specs=spec, out_specs=spec))(*inputs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, jax.jit(batch)(*inputs))
