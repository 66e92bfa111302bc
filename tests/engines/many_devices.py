"""What is checked on eight devices, in a process of its own: a process has as many devices as it starts with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import steelyard as sy
from benchmarks import networks
from steelyard.algorithms.powers import next_power
from steelyard.algorithms.schedules import tuned
from steelyard.devices.layout import laid_out
from steelyard.maps import take
from steelyard.particles.resampling import Noise, ancestors
from steelyard.particles.weights import normalize_in_any_order
from tests.lowering import share_context
from tests.running import run

KEY, SPLIT = jax.random.key(3), PartitionSpec("particles")


def mesh_of(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), ("particles",))


MESH = mesh_of(8)


def resampled(devices: int, log_weights: Any, noise: Noise, x: Any) -> Any:
    """Return ancestors, what particles take from them, and how much is sent on the way."""
    mesh, size = mesh_of(devices), x.shape[0]
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        a = ancestors(log_weights, "systematic", noise, size)
        found = a.indices, take(x, a), a.distinct, a.plans[0].rounds
    shares = tuple(NamedSharding(mesh, spec) for spec in (SPLIT, SPLIT, PartitionSpec(), PartitionSpec()))
    return jax.lax.with_sharding_constraint(found, shares)


def check_ancestors() -> None:
    """Any weights, any rotation, also where almost all particles die: a batch of cases at once, with gradients."""
    rng, cases, size = np.random.default_rng(0), 60, 40
    log_weights = rng.normal(size=(cases, size)) * rng.choice([0.0, 1.0, 10.0, 100.0], size=(cases, 1))
    for case in range(cases):
        dead = rng.choice(size, rng.integers(size), replace=False)
        log_weights[case, dead if case % 3 == 0 else slice(case % 3 * 40, None)] = -np.inf
    log_weights[-1], log_weights[-2], log_weights[-3, 7] = -np.inf, np.nan, np.nan
    words = Noise.from_uniforms(rng.random((cases, 1)), np.append(rng.integers(size, size=cases - 2), [0, size - 1]))
    x, towards = rng.normal(size=(2, cases, size, 3))

    def run_on_many(log_weights: Any, uniforms: Any, rotation: Any, x: Any, towards: Any) -> Any:
        def projected(x: Any) -> Any:
            found, taken, distinct, _ = resampled(8, log_weights, Noise(uniforms, rotation), x)
            return jnp.sum(taken * towards), (found, taken, distinct)

        _, pushed, _ = jax.jvp(projected, (x,), (towards,), has_aux=True)
        return *jax.grad(projected, has_aux=True)(x), pushed

    def run_on_one(log_weights: Any, uniforms: Any, rotation: Any) -> Any:
        return ancestors(log_weights, "systematic", Noise(uniforms, rotation), size)

    arrays = jax.tree.map(jnp.asarray, (log_weights, words.uniforms, words.rotation))
    expected = np.asarray(jax.jit(jax.vmap(run_on_one))(*arrays))
    pulled, (found, taken, distinct), pushed = jax.jit(jax.vmap(run_on_many))(
        *arrays, jnp.asarray(x), jnp.asarray(towards)
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(distinct, [len(set(row)) for row in expected])
    for case in range(cases):
        np.testing.assert_array_equal(taken[case], np.float32(x[case][expected[case]]))
        sums = np.zeros_like(x[case])
        np.add.at(sums, expected[case], towards[case])
        np.testing.assert_allclose(pulled[case], sums, atol=1e-5)
        np.testing.assert_allclose(pushed[case], np.sum(towards[case][expected[case]] * towards[case]), rtol=1e-4)


def check_communication() -> None:
    """One resample sends the particles that change devices, in messages, and some numbers for each device."""
    size, width = 2**14, 3
    log_weights = jax.random.normal(KEY, (size,))
    noise = Noise.from_uniforms([0.3], 5000)
    x = jnp.arange(size * width, dtype=jnp.float32).reshape(size, width)
    for devices in (2, 4, 8):
        shares = tuple(NamedSharding(mesh_of(devices), s) for s in (SPLIT, PartitionSpec(), PartitionSpec(), SPLIT))

        def run_on_many(log_weights: Any, uniforms: Any, rotation: Any, x: Any, devices: int = devices) -> Any:
            return resampled(devices, log_weights, Noise(uniforms, rotation), x)

        compiled = jax.jit(run_on_many, in_shardings=shares).lower(log_weights, *noise, x).compile()
        a, _, _, rounds = compiled(*jax.device_put((log_weights, *noise, x), shares))
        own = size // devices
        message = own // 32 if own // 32 > 256 else 256
        moves = np.asarray(a).reshape(devices, own) // own != np.arange(devices)[:, None]
        sent = int(rounds[1:].sum()) * message
        active = int((rounds[1:] > 0).sum())
        assert active <= 3, rounds
        # Each particle is sent once to each device, and the last message of a range is not full.
        assert sent <= moves.sum(axis=1).max() + active * message, (devices, sent, moves.sum(axis=1))
        in_messages, others = networks.collectives(compiled)
        # The slots at which particles begin, their indices, and x.
        assert sorted(set(in_messages)) == [4 * message, 4 * width * message], in_messages
        assert len(in_messages) == 3 * (devices - 1)
        # The formula by which the documentation tells what more devices would send.
        assert (sum(others), len(others)) == (networks.others(devices), networks.WAITS)
        assert 4 * (width + 2) * sent + sum(others) <= networks.sent(devices, own, 4 * width)


def filter_of(ys: Any, scale: Any) -> sy.Program:
    """A filter that resamples where it is needed."""

    def start(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("y", -0.5 * z**2)
        return z

    def step(q: sy.Program, y: Any) -> sy.Program:
        def transition(s: sy.State, z: Any) -> Any:
            with s.when(z > 0):
                s.factor("sign", 0.1 * z)
            z = s.sample("z", dist.Normal(0.9 * z, scale))
            s.factor("y", -0.5 * ((y - z) / 0.3) ** 2)
            return z

        return sy.move(transition, sy.resample(q, method="stratified", threshold=0.5))

    def begin(s: sy.State) -> Any:
        z = start(s)
        with s.when(z > 0):
            s.factor("sign", 0.0)
        return z

    return sy.scan(step, begin, ys, keep=["z"])


def check_filter() -> None:
    """Particles and ancestors are those of one device, bit for bit, and lie where they belong; so does the gradient."""
    ys, size = jnp.array([0.3, 1.0, -0.5]), 64

    def filtered(scale: Any, mesh: Mesh | None) -> Any:
        out = sy.evaluate(filter_of(ys, scale), KEY, particles=size, mesh=mesh)
        return out.log_z, out

    (_, one), slope = jax.jit(jax.value_and_grad(lambda s: filtered(s, None), has_aux=True))(0.7)
    (_, many), slope_of_many = jax.jit(jax.value_and_grad(lambda s: filtered(s, mesh_of(4)), has_aux=True))(0.7)

    def particles(e: sy.Evaluation) -> Any:
        return e.trace["z"], e.log_weight, e.value, e.ancestors, e.kept, [level.ancestors for level in e.levels]

    jax.tree.map(np.testing.assert_array_equal, particles(one), particles(many))
    np.testing.assert_allclose(many.log_z, one.log_z, atol=1e-6)
    np.testing.assert_allclose(slope_of_many, slope, rtol=1e-5)
    for leaf in jax.tree.leaves((many.trace, many.log_density, many.log_weight, many.ancestors, many.value)):
        assert leaf.sharding.spec == SPLIT
    assert many.kept is not None and many.kept.values["z"].sharding.spec == PartitionSpec(None, "particles")
    assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves((many.levels, many.loss)))


def check_islands() -> None:
    """Islands on their own are those of one device, and send each other nothing but numbers."""

    def model(s: sy.State) -> None:
        s.factor("y", 3.0 * s.sample("z", dist.Normal(jnp.zeros(2), 1.0)).sum())

    q = sy.resample(model, islands=16)
    one = run(q, particles=64, key=KEY)
    compiled = jax.jit(lambda key: sy.evaluate(q, key, particles=64, mesh=mesh_of(8))).lower(KEY).compile()
    many = compiled(KEY)
    jax.tree.map(np.testing.assert_array_equal, *((e.ancestors, e.trace["z"], e.log_weight) for e in (one, many)))
    in_messages, others = networks.collectives(compiled)
    assert not in_messages and sum(others) <= 4 * 64
    assert len(others) <= networks.WAITS_OF_ISLANDS, others
    # All together, and then some of each island to the next: three particles leave each device.
    together = sy.resample(model, islands=8, threshold=1.0, ring=0.75)
    one, many = (
        jax.jit(lambda key, m=mesh: sy.evaluate(together, key, particles=32, mesh=m))(KEY)
        for mesh in (None, mesh_of(4))
    )
    jax.tree.map(np.testing.assert_array_equal, *((e.ancestors, e.trace["z"], e.log_weight) for e in (one, many)))
    with pytest.raises(sy.ArgumentError, match="4 islands cannot be shared out evenly to 8 devices"):
        sy.evaluate(sy.resample(model, islands=4), KEY, particles=64, mesh=mesh_of(8))


def check_one_particle_a_device() -> None:
    """A single number is not divided like one of many."""

    def model(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("y", -0.5 * ((0.3 - z) / 0.3) ** 2)
        return z

    one, many = (jax.jit(lambda k, m=mesh: sy.evaluate(model, k, particles=8, mesh=m))(KEY) for mesh in (None, MESH))
    jax.tree.map(np.testing.assert_array_equal, *((e.trace["z"], e.log_weight, e.value) for e in (one, many)))


def check_adaptive() -> None:
    """The next power, and the parameters of a kernel, are those of one device."""
    log_weight, log_likelihood = jax.random.normal(KEY, (2, 64)) * 3
    rows = {"z": jax.random.normal(KEY, (64, 2)) * jnp.array([[100.0, 0.1]])}
    names, options = ("step_size", "inverse_mass_matrix"), sy.adaptive(dense=True)

    def chosen(devices: int) -> Any:
        mesh = mesh_of(devices)
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            w, likelihood, x = laid_out((log_weight, log_likelihood, rows), 64)
            beta = next_power(w, likelihood, jnp.asarray(0.1), 0.8)
            found = beta, tuned(names, x, normalize_in_any_order(w), jnp.asarray(0.7), options)
        return jax.lax.with_sharding_constraint(found, NamedSharding(mesh, PartitionSpec()))

    one, many = (jax.jit(chosen, static_argnums=0)(devices) for devices in (1, 8))
    jax.tree.map(np.testing.assert_array_equal, one, many)
    assert 0.1 < one[0] < 1


def check_outside_of_jit() -> None:
    """A mesh of more axes, in chunks, outside of `jit`."""

    def model(s: sy.State) -> Any:
        z = s.sample("z", dist.Gamma(0.5 * jnp.ones(2)))
        s.factor("y", -z.sum())
        return z

    mesh = jax.make_mesh((2, 4), ("data", "particles"))
    one = run(model, particles=48, key=KEY)
    many = sy.evaluate(model, KEY, particles=48, mesh=mesh, chunk=5)
    np.testing.assert_array_equal(many.trace["z"], one.trace["z"])
    np.testing.assert_allclose(many.log_z, one.log_z, atol=1e-6)
    assert many.trace["z"].sharding.spec == SPLIT
    batch = jax.vmap(lambda key: sy.evaluate(model, key, particles=48, mesh=mesh))(jnp.stack([KEY]))
    np.testing.assert_array_equal(batch.trace["z"][0], one.trace["z"])

    def impossible(s: sy.State) -> None:
        s.factor("y", -jnp.inf)

    with pytest.raises(sy.WeightError, match="every particle has weight zero; the density at 'y' in impossible"):
        sy.evaluate(impossible, KEY, particles=8, mesh=mesh)
    with pytest.raises(sy.ArgumentError, match=r"50 particles cannot be shared out evenly to 4 devices.*52"):
        sy.evaluate(model, KEY, particles=50, mesh=mesh)
    with pytest.raises(sy.ArgumentError, match='none is called "particles"'):
        sy.evaluate(model, KEY, particles=48, mesh=jax.make_mesh((8,), ("data",)))


if __name__ == "__main__":
    share_context()
    check_ancestors()
    check_communication()
    check_filter()
    check_islands()
    check_one_particle_a_device()
    check_adaptive()
    check_outside_of_jit()
