"""What is checked of training on eight devices, in a process of its own.

python -m tests.training.many_devices [--long]
"""

import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec

import steelyard as sy
from benchmarks import networks

DATA = np.array([0.3, -1.2, 2.0, 0.1, -0.4, 1.1, 0.9, -2.2], np.float32), np.arange(16.0).reshape(8, 2) / 10
KEYS = jax.random.split(jax.random.key(5), 4)


def mesh_of(shape: tuple[int, ...], names: tuple[str, ...]) -> Mesh:
    return Mesh(np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape), names)


def program(m: Any, x: Any, y: Any) -> Any:
    """Resampling between two observations; the bound of the models does not learn."""

    def start(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(m["slope"] * x, jnp.exp(m["scale"])))
        s.factor("y", -0.5 * (y[0] - z) ** 2)
        return z

    def model(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(m["bound"][0] * 1.0, 1.0))
        s.observe("x", dist.Normal(z, 1.0), x)
        s.factor("more", -0.1 * (y[1] - z) ** 2)

    return sy.propose(model, sy.resample(sy.rename(start, {"y": "first"})))


def models(shift: Any = 0.0) -> Any:
    return {"slope": jnp.array([0.1]) + shift, "scale": jnp.array([0.0]), "bound": jnp.array([2]) + jnp.int32(shift)}


def shaped(m: Any, x: Any, y: Any) -> Any:
    return program({"slope": m["slope"][0], "scale": m["scale"][0], "bound": m["bound"]}, x, y)


def trained(mesh: Mesh | None, **given: Any) -> sy.TrainResult:
    arguments = {"models": models(), "key": KEYS[0], "steps": 8, "batch_size": 4, "particles": 8, **given}
    optimizer = optax.inject_hyperparams(optax.adam)(0.05)
    arguments |= {"optimizer": optimizer, "data": DATA, "progress": False, "objective": sy.objectives.iwae}
    return sy.train(shaped, mesh=mesh, **arguments)


def assert_close(found: sy.TrainResult, expected: sy.TrainResult) -> None:
    np.testing.assert_allclose(found.history.loss, expected.history.loss, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.history.loss[0], expected.history.loss[0], rtol=1e-6)
    for field in ("log_z", "ess", "gradient_norm", "learning_rate"):
        np.testing.assert_allclose(getattr(found.history, field), getattr(expected.history, field), rtol=1e-3)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found.models, expected.models)


def check_data_and_particles() -> None:
    """Draws, losses and parameters are those of one device, whichever axes there are."""
    for shape, names, given in (
        ((4,), ("data",), {"replacement": False}),
        ((2, 4), ("data", "particles"), {"batch_size": None}),
    ):
        many = trained(mesh_of(shape, names), **given)
        assert_close(many, trained(None, **given))
        assert all(x.sharding.is_fully_replicated for x in jax.tree.leaves(many.models))


def check_seeds() -> None:
    """Each seed learns what it would have learned on its own; what does not learn may differ between them, too."""
    several = jax.vmap(models)(jnp.array([0.0, 1.0, 2.0, 3.0]))
    many = trained(mesh_of((4,), ("seeds",)), models=several, key=KEYS)
    assert many.history.loss.shape == (8, 4) and many.models["slope"].sharding.spec == PartitionSpec("seeds")
    one = trained(None, models=models(3.0), key=KEYS[3])
    last = jax.tree.map(lambda x: x[3], many.models), jax.tree.map(lambda x: x[:, 3], many.history)
    assert_close(sy.TrainResult(*last), one)
    with tempfile.TemporaryDirectory() as folder:
        given = {"models": several, "key": KEYS, "checkpoint": folder}
        trained(mesh_of((4,), ("seeds",)), steps=5, **given)
        # It goes on with other devices.
        assert_close(trained(mesh_of((2, 2), ("data", "seeds")), **given), many)


def check_communication() -> None:
    """Seeds send nothing; shares of the data send their gradients, once in a step."""
    several = jax.vmap(models)(jnp.arange(4.0))
    for names, of, keys in ((("seeds",), several, KEYS), (("data",), models(), KEYS[0])):
        made = sy.trainer(
            shaped,
            of,
            optimizer=optax.sgd(0.1),
            particles=8,
            objective=sy.objectives.iwae,
            batch_size=4,
            mesh=mesh_of((4,), names),
        )
        compiled = jax.jit(made.loop(sum_of_losses)).lower(made.init(), keys, DATA, 3).compile()
        in_messages, others = networks.collectives(compiled)
        # The loss and the gradient of two numbers; nobody asks for log Z and the ESS.
        assert not in_messages and sum(others) == (0 if names == ("seeds",) else 4 * 3), others
        learner, total = made.init(), 0.0
        for _ in range(3):
            learner, now = made.step(learner, keys, DATA)
            total += np.asarray(now.loss)
        np.testing.assert_allclose(compiled(made.init(), keys, DATA, 3), total, rtol=1e-5)


def sum_of_losses(step: Any, learner: Any, key: Any, data: Any, count: Any) -> Any:
    def add(_: Any, carry: Any) -> Any:
        learner, now = step(carry[0], key, data)
        return learner, carry[1] + now.loss

    return jax.lax.fori_loop(0, count, add, (learner, 0.0))[1]


def check_errors() -> None:
    wrong: list[tuple[Any, ...]] = [
        ('batch_size=6 cannot be shared out evenly to the 4 devices of the axis "data".*8', (4,), ("data",), {}),
        ("8 data cannot be shared out.*Leave 2 of them out", (3,), ("data",), {"batch_size": None}),
        ("8 particles cannot be shared out evenly to 3", (3,), ("particles",), {}),
        ("seeds.*key is an array with a key for each seed", (2,), ("seeds",), {}),
        ("has shape .1,., without an axis of 4 seeds", (2,), ("seeds",), {"key": KEYS}),
        ("the mesh has the axes 'rows'", (2,), ("rows",), {}),
        ('4 seeds cannot be.*3 devices of the axis "seeds".*6', (3,), ("seeds",), {"key": KEYS, "models": None}),
    ]
    for message, shape, names, given in wrong:
        given = {"batch_size": 6, **given}
        if given.get("models", 0) is None:
            given["models"] = jax.vmap(models)(jnp.arange(4.0))
        with pytest.raises(sy.ArgumentError, match=message):
            trained(mesh_of(shape, names), **given)
    with pytest.raises(sy.ArgumentError, match="no data to lay over it"):
        sy.train(
            lambda m: program(m, 0.0, jnp.zeros(2)),
            {"slope": 0.1},
            mesh=mesh_of((2,), ("data",)),
            optimizer=optax.sgd(0.1),
            steps=1,
            key=KEYS[0],
            particles=2,
        )
    with pytest.raises(sy.ArgumentError, match="mesh is a mesh of devices"):
        sy.train(shaped, models(), mesh=4, optimizer=optax.sgd(0.1), steps=1, key=KEYS[0], particles=2)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    if "--long" in sys.argv:
        check_data_and_particles()
        check_seeds()
    else:
        check_errors()
        check_communication()
