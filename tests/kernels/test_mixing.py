"""Kernels, tempering and transport inside of other programs, and other programs inside of them."""

from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

HMC = partial(blackjax.hmc, step_size=0.3, inverse_mass_matrix=jnp.ones(1), num_integration_steps=3)


def first(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(0.3, 1.0))
    s.observe("x", dist.Normal(z, 0.5), 1.0)
    return z


def second(s: sy.State, z: Any) -> Any:
    v = s.sample("v", dist.Normal(0.5 * z, 0.7))
    s.observe("y", dist.Normal(v, 0.4), 0.6)
    return v


def walk(s: sy.State, v: Any) -> None:
    s.sample("v", dist.Normal(0.8 * v, 0.5))


# x and y are jointly normal: x = z + noise, y = z / 2 + noise.
COVARIANCE = jnp.array([[1.25, 0.5], [0.5, 0.25 + 0.49 + 0.16]])
EXACT = float(dist.MultivariateNormal(jnp.array([0.3, 0.15]), COVARIANCE).log_prob(jnp.array([1.0, 0.6])))
PROGRAMS = {
    "after another program": sy.compose(sy.mcmc(HMC, second), sy.resample(first)),
    "of all of it": sy.mcmc(partial(HMC, inverse_mass_matrix=jnp.ones(2)), sy.compose(second, first), steps=2),
    "after a resampling inside": sy.compose(sy.metropolis(walk, sy.resample(second)), sy.mcmc(HMC, first)),
    "renamed": sy.compose(sy.rename(sy.metropolis(walk, second), {"v": "u"}), first),
    "detached": sy.compose(
        sy.detach(sy.mcmc(HMC, second)), sy.metropolis(lambda s, z: s.sample("z", dist.Normal(z, 1.0)), first)
    ),
    "one after the other": sy.mcmc(HMC, sy.metropolis(walk, sy.compose(second, first)), only=["v"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_evidence_and_moments(name: str) -> None:
    q = PROGRAMS[name]
    sy.testing.check_evidence(q, EXACT, key=jax.random.key(0), particles=200, runs=200, max_standard_error=0.05)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=20_000))(jax.random.key(1))
    # E[v | x, y] and E[z | x, y]
    gain = jnp.array([[1.0, 0.5], [0.5, 0.25 + 0.49]]) @ jnp.linalg.inv(COVARIANCE)
    z, v = jnp.array([0.3, 0.15]) + gain @ jnp.array([0.7, 0.45])
    found = [out.expect(lambda t, a=a: t[a]) for a in ("z", "u" if name == "renamed" else "v")]
    np.testing.assert_allclose(found, [z, v], atol=0.03)


def test_densities_are_those_of_the_trace() -> None:
    for q in PROGRAMS.values():
        out = sy.evaluate(q, jax.random.key(0), particles=2)
        for l in range(2):
            density = sy.log_density(q, {a: x[l] for a, x in out.trace.items()})
            np.testing.assert_allclose(sum(x[l] for x in out.log_density.values()), density, rtol=1e-5)


def test_wake_updates_at_moved_particles() -> None:
    """HMC-RWS: the model learns where the kernel brought the particles, and the guide where they came from."""

    def model(theta: Any) -> Any:
        def f(s: sy.State) -> None:
            z = s.sample("z", dist.Normal(theta, 1.0))
            s.observe("x", dist.Normal(z, 0.5), 1.0)

        return f

    def guide(s: sy.State) -> None:
        s.sample("z", dist.Normal(0.8, 0.6))

    def loss(theta: Any) -> Any:
        moved = sy.mcmc(HMC, sy.detach(sy.propose(model(theta), sy.detach(guide))), steps=3)
        q = sy.propose(model(theta), moved, objective=sy.objectives.wake_theta)
        return sy.evaluate(q, jax.random.key(0), particles=20_000).loss

    # The slope of -log p(x), x ~ N(theta, 1.25).
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(0.2), -(1.0 - 0.2) / 1.25, atol=0.03)


def test_looking_at_programs(capsys: pytest.CaptureFixture[str]) -> None:
    q = sy.algorithms.tempered(first, HMC, sy.adaptive())
    sy.show(q)
    assert "mcmc hmc" in capsys.readouterr().out
    assert sy.addresses(q).trace == {"z"}
    sy.check(sy.metropolis(walk, sy.compose(second, sy.mcmc(HMC, first))))
    assert sy.target(sy.mcmc(HMC, sy.resample(first))) == sy.target(first)


def test_kernels_of_the_wrong_form() -> None:
    with pytest.raises(sy.ArgumentError, match="two functions"):
        sy.evaluate(sy.mcmc(lambda log_density: None, first), jax.random.key(0), particles=2)
    with pytest.raises(sy.ArgumentError, match="attribute `position`"):
        sy.evaluate(sy.mcmc(lambda _: (lambda x: x, lambda key, x: (x, None)), first), jax.random.key(0), particles=2)


def test_under_shard_map() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("runs",))
    p = jax.sharding.PartitionSpec("runs")

    def run(keys: Any) -> Any:
        q = sy.metropolis(walk, sy.compose(second, first), steps=2)
        return jax.vmap(lambda key: sy.evaluate(q, key, particles=3).log_z)(keys)

    keys = jax.random.split(jax.random.key(0), 2)
    found = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=p, out_specs=p))(keys)
    np.testing.assert_allclose(found, run(keys), rtol=1e-5)
