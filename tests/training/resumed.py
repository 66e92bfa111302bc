"""Runs of every kind of model in one process, from their checkpoints, if there are any.

python -m tests.training.resumed FOLDER STEPS
"""

import json
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from flax import nnx

import steelyard as sy
from steelyard.training.identity import digest_of_arrays
from tests.training.programs import INPUTS, dense, posterior, weights

CONSTANTS = np.linspace(-1.0, 1.0, 2000, dtype=np.float32)


class Network(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.hidden = nnx.Linear(1, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)
        self.out = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.out(nnx.relu(self.norm(self.hidden(x[None, None]))))[0, 0]


def closure(m: Any) -> Any:
    """Constants that are closed over, and distributions without a gradient through their draws."""

    def model(s: sy.State) -> None:
        z, c = s.sample("z", dist.Gamma(2.0, 1.0)), s.sample("c", dist.Categorical(logits=jnp.zeros(3)))
        s.observe("x", dist.StudentT(3.0, z + c, 1.0).expand((2000,)), jnp.asarray(CONSTANTS))

    def guide(s: sy.State) -> None:
        s.sample("z", dist.LogNormal(m["a"], jnp.exp(m["b"])))
        s.sample("c", dist.Categorical(logits=m["logits"]))

    return sy.algorithms.svi(model, guide)


def annealing(m: Any) -> Any:
    """The parameters of NumPyro's distributions are in the order of a set, which differs from process to process."""

    def target(b: Any) -> Any:
        def p(s: sy.State) -> Any:
            x = s.sample("x", dist.Normal(0.0, 3.0))
            s.factor("heat", b * jnp.sin(x))
            return x

        return p

    def kernel(w: Any) -> Any:
        return lambda s, x: s.sample("x", dist.StudentT(2 + (w[0] * x) ** 2, w[1] * x, jnp.exp(w[2] * x)))

    over = (jnp.linspace(0.0, 1.0, 4), (m, m))
    return sy.algorithms.nvi(target, lambda w: (kernel(w[0]), kernel(w[1])), over, resampling=True)


def runs() -> dict[str, dict[str, Any]]:
    mlp = eqx.nn.MLP("scalar", "scalar", 8, 1, activation=jax.nn.gelu, key=jax.random.key(1))
    schedule = optax.adam(optax.cosine_decay_schedule(0.03, 150))
    return {
        "a dictionary": {
            "program": lambda w, x: posterior(lambda x: dense(w, x), x),
            "models": weights(),
            "data": INPUTS,
            "batch_size": 8,
            "optimizer": schedule,
        },
        "Equinox": {"program": posterior, "models": mlp, "data": INPUTS},
        "NNX": {"program": posterior, "models": Network(), "data": INPUTS},
        "a closure": {"program": closure, "models": {"a": 0.0, "b": 0.0, "logits": jnp.zeros(3)}},
        "a scan": {"program": annealing, "models": jnp.full((3, 3), 0.1)},
    }


def main(folder: Path, steps: int) -> None:
    found = {}
    for name, given in runs().items():
        arguments = {
            "optimizer": optax.adam(0.01),
            "key": jax.random.key(0),
            "particles": 3,
            "progress": False,
            **given,
        }
        first: list[int] = []
        result = sy.train(
            **arguments,
            steps=steps,
            checkpoint=folder / name,
            callback=lambda r, first=first: first.append(len(r.history)),
        )
        learned = eqx.filter(result.models, eqx.is_inexact_array)
        found[name] = [first[0], digest_of_arrays((learned, result.history))]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
