"""What an estimator of a gradient gives on average: by Monte Carlo, or exactly where outcomes are finite."""

from collections.abc import Callable, Mapping
from math import lgamma
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import steelyard as sy

Params = dict[str, Any]
Objective = Callable[[sy.Level], Any]
Build = Callable[[Params, Objective], Any]
"""From parameters, and the objective of the level under test, to an inference program."""

MAX_STANDARD_ERRORS = 4.0
MAX_RELATIVE_ERROR = 0.02
AT_ONCE = 2**18
"""How many particles are in memory. Batches and runs are powers of two: nothing is left over, to be compiled again."""


class Runs(NamedTuple):
    """The losses and gradients of independent runs, and the values of all variables that they were computed from."""

    loss: np.ndarray
    gradient: dict[str, np.ndarray]
    values: dict[str, np.ndarray]


def run_all(
    build: Build, params: Params, objectives: Mapping[str, Objective], *, particles: int, runs: int, seed: int = 0
) -> dict[str, Runs]:
    """Evaluate a program in many independent runs, and the gradients of several objectives on the same particles."""

    def losses(params: Params, key: Any) -> Any:
        values: dict[str, Any] = {}
        # A loss is one number: those of several objectives are added up here, level by level.
        levels: list[Any] = []

        def every_objective(level: sy.Level) -> Any:
            values.update({**level.proposal.trace, **level.target.trace})
            levels.append(jnp.stack([objective(level) for objective in objectives.values()]))
            return levels[-1].sum()

        sy.evaluate(build(params, every_objective), key, particles=particles)
        loss = sum(levels)
        return loss, (loss, values)

    def one(key: Any) -> Any:
        gradient, (loss, values) = jax.jacrev(losses, has_aux=True)(params, key)
        return loss, gradient, values

    every = jax.vmap(one)
    if runs * particles > AT_ONCE:
        every = lambda keys: jax.lax.map(one, keys, batch_size=2 ** (AT_ONCE // particles).bit_length() // 2)  # noqa: E731
    params = jax.tree.map(jnp.asarray, params)
    # What runs once is not worth optimising, if it is small.
    options = {"xla_backend_optimization_level": 0} if runs * particles <= AT_ONCE else None
    every = jax.jit(every, compiler_options=options)
    loss, gradient, values = jax.tree.map(np.asarray, every(jax.random.split(jax.random.key(seed), runs)))
    return {
        name: Runs(loss[:, i], {density: g[:, i] for density, g in gradient.items()}, values)
        for i, name in enumerate(objectives)
    }


def run(build: Build, params: Params, objective: Objective, *, particles: int, runs: int, seed: int = 0) -> Runs:
    """Evaluate a program and the gradient of one objective in many independent runs."""
    return run_all(build, params, {"": objective}, particles=particles, runs=runs, seed=seed)[""]


def check_average(found: Runs, exact: Params) -> None:
    """Assert that the average gradient is the exact one, within 4 standard errors of at most 2 % of it."""
    wrong = []
    for name, expected in exact.items():
        gradient, expected = found.gradient[name].astype(float), np.asarray(expected)
        mean, error = gradient.mean(0), gradient.std(0, ddof=1) / np.sqrt(len(gradient))
        if not (np.abs(mean - expected) <= MAX_STANDARD_ERRORS * error + 1e-6).all():
            wrong.append(f"{name} is biased: {mean} +- {error}, exact {expected}")
        if not (error <= MAX_RELATIVE_ERROR * np.abs(expected)).all():
            wrong.append(f"{name} is too noisy: {mean} +- {error}, exact {expected}")
    assert not wrong, "\n".join(wrong)


class Finite(NamedTuple):
    """A level whose particles take finitely many states, and the log probability that a particle is in each."""

    build: Build
    state: Callable[[dict[str, np.ndarray]], np.ndarray]
    log_probability: Callable[[Params], Any]


def expectation(problem: Finite, params: Params, found: Runs, missing: float = 1e-5) -> dict[str, np.ndarray]:
    """Return the expectation of an estimator of the gradient, without Monte Carlo noise.

    The gradient is a function of the states of the particles, in any order. Each combination is found among the runs,
    and counts with its exact probability; `missing` bounds the probability of those that no run had.
    """
    states = np.sort(problem.state(found.values), axis=-1)
    combinations, first = np.unique(states, axis=0, return_index=True)
    log_probability = np.asarray(problem.log_probability(params), float)
    probability = np.exp([_log_multinomial(c, log_probability) for c in combinations])
    assert 1 - missing < probability.sum() < 1 + 1e-5
    return {name: np.tensordot(probability, g[first].astype(float), 1) for name, g in found.gradient.items()}


def _log_multinomial(states: np.ndarray, log_probability: np.ndarray) -> float:
    counts = np.bincount(states, minlength=len(log_probability))
    return lgamma(len(states) + 1) - sum(lgamma(n + 1) for n in counts) + float(counts @ log_probability)


def assert_close(found: Mapping[str, Any], exact: Params, tolerance: float = 1e-4) -> None:
    """Assert that two gradients are the same but for rounding."""
    for name, expected in exact.items():
        np.testing.assert_allclose(found[name], expected, rtol=tolerance, atol=0.1 * tolerance, err_msg=name)


def exact_gradient(function: Callable[[Params], Any], params: Params) -> dict[str, np.ndarray]:
    """Return the gradient, or the Jacobian, of a function that does not sample, in double precision."""
    with jax.enable_x64(True):
        doubles = jax.tree.map(lambda x: jnp.asarray(x, float), params)
        return jax.tree.map(np.asarray, jax.jit(jax.jacrev(function))(doubles))
