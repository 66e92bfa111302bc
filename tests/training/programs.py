"""Small programs to train, and what the tests ask of a run."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax

import steelyard as sy

Loss = Callable[..., Any]

ARGUMENTS: dict[str, Any] = {"steps": 40, "particles": 3, "key": jax.random.key(0), "progress": False}


def exact(loss: Loss) -> Callable[..., Any]:
    """Return a program whose loss is `loss(models, *datum)`, without noise."""

    def program(models: Any, *datum: Any) -> Any:
        return sy.algorithms.svi(lambda s: s.factor("fit", -loss(models, *datum)), lambda s: None)

    return program


def square(m: Any, x: Any = 3.0) -> Any:
    return jnp.sum((m - x) ** 2)


def unlucky(loss: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a program whose loss is `loss(models, flag)`, where the flag is raised in about one step of six."""

    def program(models: Any) -> Any:
        def model(s: sy.State) -> None:
            s.factor("fit", -loss(models, s.sample("z", dist.Normal(0.0, 1.0)) > 1.0))

        def guide(s: sy.State) -> None:
            s.sample("z", dist.Normal(0.0, 1.0))

        return sy.algorithms.svi(model, guide)

    return program


def posterior(network: Callable[[Any], Any], x: Any) -> Any:
    """Propose z for z ~ N(0, 1), x ~ N(z, 1) from N(network(x), 0.7); the best network is x / 2."""

    def model(s: sy.State) -> None:
        s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), x)

    def guide(s: sy.State) -> None:
        s.sample("z", dist.Normal(network(x), 0.7))

    return sy.algorithms.svi(model, guide)


INPUTS = np.linspace(-2.0, 2.0, 64, dtype=np.float32)


def dense(weights: dict[str, Any], x: Any) -> Any:
    """A network of one hidden layer, as a plain dictionary."""
    return jnp.dot(weights["out"], jnp.tanh(weights["in"] * x + weights["bias"]))


def weights() -> dict[str, Any]:
    return {"in": jax.random.normal(jax.random.key(1), (8,)), "bias": jnp.zeros(8), "out": jnp.full(8, 0.1)}


def network_run(**arguments: Any) -> sy.TrainResult:
    """Train the network for the posterior: noise, minibatches and an optimiser with a state and a schedule."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.03, 150))
    given = {"data": INPUTS, "batch_size": 8, "particles": 5, "steps": 60, "optimizer": optimizer}
    return sy.train(lambda w, x: posterior(lambda x: dense(w, x), x), weights(), **{**ARGUMENTS, **given, **arguments})


@cache
def unbroken() -> sy.TrainResult:
    """Train the network in one go."""
    return network_run()


def by_hand(loss: Loss, models: Any, optimizer: optax.GradientTransformation, steps: int) -> Any:
    """Train without steelyard."""

    @jax.jit
    def step(models: Any, state: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(loss)(models), state, models)
        return optax.apply_updates(models, updates), state

    state = optimizer.init(models)
    for _ in range(steps):
        models, state = step(models, state)
    return models


def identical(a: Any, b: Any) -> bool:
    """Tell whether two trees are equal to the last bit."""
    same = jax.tree.structure(a) == jax.tree.structure(b)
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return same and all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in leaves)


def content(path: Path) -> dict[str, str]:
    """Return all that is under a path, as names and hashes."""
    inner = {str(p.relative_to(path)): p for p in [path, *sorted(path.rglob("*"))]}
    return {name: hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "" for name, p in inner.items()}
