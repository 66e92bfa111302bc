"""One Gaussian model for all algorithms, with its exact evidence, and what each of them needs of it.

z1 ~ N(m, 1)    z2 ~ N(0.8 z1, 1)    x1 ~ N(z1, 0.8)    x2 ~ N(z2, 0.8)
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import blackjax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import steelyard as sy
from steelyard import algorithms, objectives

Params = dict[str, Any]

DATA = (0.9, -0.4)
PARAMS: Params = {
    "model": 0.3,
    "guide": np.array([0.5, -0.2, -0.3]),
    "start": np.array([0.2, -0.1]),
    "path": 0.4,
    "forward": np.array([0.5, 0.25, -0.5]),
    "reverse": np.array([0.4, 0.15, -0.4]),
    "kernel": np.array([0.3, 0.4, -0.4]),
}


def log_evidence(params: Params) -> float:
    """The density of the data: their covariance is that of (z1, z2), and the noise."""
    m = float(params["model"])
    covariance = np.array([[1.0, 0.8], [0.8, 0.64 + 1.0]]) + 0.64 * np.eye(2)
    deviation = np.asarray(DATA) - np.array([m, 0.8 * m])
    quadratic = deviation @ np.linalg.solve(covariance, deviation)
    return float(-0.5 * (quadratic + np.log(np.linalg.det(2 * np.pi * covariance))))


def model(params: Params, power: Any = 1.0) -> Any:
    """The model, with the likelihood to some power."""

    def program(s: sy.State) -> Any:
        z1 = s.sample("z1", dist.Normal(params["model"], 1.0))
        z2 = s.sample("z2", dist.Normal(0.8 * z1, 1.0))
        for name, z, x in (("x1", z1, DATA[0]), ("x2", z2, DATA[1])):
            s.factor(name, power * dist.Normal(z, 0.8).log_prob(x))
        return z1, z2

    return program


def guide(params: Params) -> Any:
    def program(s: sy.State) -> Any:
        first, second, scale = params["guide"]
        z1 = s.sample("z1", dist.Normal(first, jnp.exp(scale)))
        return z1, s.sample("z2", dist.Normal(second + 0.3 * z1, jnp.exp(scale)))

    return program


def start(params: Params) -> Any:
    def program(s: sy.State) -> Any:
        mean, scale = params["start"]
        return tuple(s.sample(name, dist.Normal(mean, jnp.exp(scale))) for name in ("z1", "z2"))

    return program


def both(shape: Any) -> Any:
    """A kernel that moves both variables."""

    def program(s: sy.State, z: Any) -> Any:
        return tuple(
            s.sample(name, dist.Normal(shape[0] * old + shift, jnp.exp(shape[2])))
            for name, old, shift in zip(("z1", "z2"), z, (shape[1], 0.0), strict=True)
        )

    return program


def annealing(algorithm: Callable[..., Any], **options: Any) -> Callable[[Params], Any]:
    """A path of two targets: the first has a power of the likelihood, which is learned."""

    def build(params: Params) -> Any:
        kernels = (both(params["forward"]), both(params["reverse"]))
        return algorithm([start(params), model(params, params["path"]), model(params)], [kernels] * 2, **options)

    return build


def filtering(algorithm: Callable[..., Any], guided: bool = True, **options: Any) -> Callable[[Params], Any]:
    """The model as two steps of a filter."""

    def build(params: Params) -> Any:
        def first(s: sy.State) -> Any:
            z = s.sample("z1", dist.Normal(params["model"], 1.0))
            s.observe("x1", dist.Normal(z, 0.8), DATA[0])
            return z

        def second(s: sy.State, z: Any) -> Any:
            z = s.sample("z2", dist.Normal(0.8 * z, 1.0))
            s.observe("x2", dist.Normal(z, 0.8), DATA[1])
            return z

        a, b, scale = params["guide"]
        proposals = [
            lambda s: s.sample("z1", dist.Normal(a, jnp.exp(scale))),
            lambda s, z: s.sample("z2", dist.Normal(b + 0.3 * z, jnp.exp(scale))),
        ]
        return algorithm([first, second], *([proposals] if guided else []), **options)

    return build


def sweeping(algorithm: Callable[..., Any], **options: Any) -> Callable[[Params], Any]:
    """One sweep over the two variables."""

    def build(params: Params) -> Any:
        slope, shift, scale = params["kernel"]

        def update(name: str, other: int, sign: float) -> Any:
            return lambda s, z: s.sample(name, dist.Normal(slope * z[other] + sign * shift, jnp.exp(scale)))

        return algorithm(model(params), guide(params), [update("z1", 1, 1.0), update("z2", 0, -0.5)], 1, **options)

    return build


def tempering(params: Params) -> Any:
    """Three powers of the likelihood."""
    kernel = partial(blackjax.mala, step_size=0.1)
    return algorithms.tempered(model(params), kernel, [0.0, 0.3, 1.0], initial=guide(params))


def proposing(algorithm: Callable[..., Any]) -> Callable[[Params], Any]:
    return lambda params: algorithm(model(params), guide(params))


class Case(NamedTuple):
    """An algorithm applied to the model, the parameters that it learns, and how many levels have a loss."""

    build: Callable[[Params], Any]
    learned: set[str]
    levels: int


PATH = {"model", "start", "path", "forward", "reverse"}
FORWARD = {"objective": objectives.forward_kl}
CASES: dict[str, Case] = {
    "importance": Case(proposing(algorithms.importance), set(), 0),
    "svi": Case(proposing(algorithms.svi), {"model", "guide"}, 1),
    "iwae": Case(proposing(algorithms.iwae), {"model", "guide"}, 1),
    "rws": Case(proposing(algorithms.rws), {"model", "guide"}, 1),
    "ais": Case(annealing(algorithms.ais), set(), 0),
    "avo": Case(annealing(algorithms.avo), PATH - {"path"}, 2),
    "nvi": Case(annealing(algorithms.nvi, resampling=False), PATH, 2),
    "nvi resampling": Case(annealing(algorithms.nvi), PATH, 2),
    "nvi forward": Case(annealing(algorithms.nvi, resampling=False, **FORWARD), PATH, 2),
    "nvi resampling forward": Case(annealing(algorithms.nvi, method="residual", **FORWARD), PATH, 2),
    "smc": Case(filtering(algorithms.smc, guided=False), set(), 0),
    "smc guided": Case(filtering(algorithms.smc, method="stratified", threshold=0.5), set(), 0),
    "vsmc": Case(filtering(algorithms.vsmc), {"model", "guide"}, 2),
    "nasmc": Case(filtering(algorithms.nasmc), {"model", "guide"}, 2),
    "gibbs": Case(sweeping(algorithms.gibbs, method="multinomial"), set(), 0),
    "apg": Case(sweeping(algorithms.apg), {"model", "guide", "kernel"}, 3),
    "tempered": Case(tempering, set(), 0),
}
