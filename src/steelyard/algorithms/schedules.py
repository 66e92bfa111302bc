"""Schedules of tempered samplers: those that are still to be found, and those that were."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from rich.table import Table

from steelyard.arguments import check_count
from steelyard.devices.sums import total_in_any_order
from steelyard.errors import ArgumentError
from steelyard.language.programs import name_of
from steelyard.output import rendered
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import Count, is_traced

# What can be tuned to the particles, by the names that BlackJAX has for it.
TUNED = ("step_size", "inverse_mass_matrix")


@dataclass(frozen=True)
class Adaptive:
    """A schedule that is still to be found; see `adaptive`."""

    ess: float
    most: int
    acceptance: float
    dense: bool


def adaptive(ess: float = 0.9, most: Count = 200, *, acceptance: float = 0.65, dense: bool = False) -> Adaptive:
    """Choose temperatures, and the parameters of the kernel, from the particles on the way.

    Each next power is the largest at which the conditional effective sample size is still this fraction, found by
    bisection. Where the kernel leaves `inverse_mass_matrix` open, it is the variance of the particles; where it leaves
    `step_size` open, that follows the acceptance rate.

    What is chosen from the particles that it is used on is no longer independent of them: weights are not exactly
    proper, and the estimate of Z is biased, by little if there are many particles. `found(out)` is the schedule that a
    run chose; running again with that, and another key, is proper again.

    Args:
        ess: the conditional effective sample size to keep, as a fraction of the particles, in (0, 1).
        most: the largest number of levels. A run that needs more raises an error; under `jit` log Z is NaN.
        acceptance: the acceptance rate that the step size is to have.
        dense: whether the mass matrix has the covariances of the particles, not their variances alone.

    Returns:
        A schedule, for `tempered`.

    Raises:
        ArgumentError: a number makes no sense.

    References:
        Del Moral, Doucet and Jasra (2012); Zhou, Johansen and Aston (2016); Beskos, Jasra, Kantas and Thiery (2016).

    Example:
        >>> import steelyard as sy
        >>> sy.adaptive(ess=0.8).most
        200
    """
    if not 0 < ess < 1:
        raise ArgumentError(f"adaptive: ess is a fraction of the particles between 0 and 1, got {ess!r}.")
    if not 0 < acceptance < 1:
        raise ArgumentError(f"adaptive: acceptance is a rate between 0 and 1, got {acceptance!r}.")
    return Adaptive(float(ess), check_count(most, "adaptive", "most"), float(acceptance), dense)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Schedule:
    """The powers of the likelihood from the first to 1, and for each move the parameters of the kernel, by name.

    Example:
        >>> import jax.numpy as jnp, steelyard as sy
        >>> sy.Schedule(jnp.array([0.0, 0.5, 1.0]), {"step_size": jnp.array([0.3, 0.2])})
        level  beta  step_size
            1   0.5        0.3
            2     1        0.2
    """

    beta: Float[Array, " levels_and_one"]
    parameters: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        if is_traced(self.beta):
            return f"Schedule({self.beta!r}, {self.parameters!r})"
        table = Table(box=None, pad_edge=False)
        for name in ("level", "beta", *self.parameters):
            table.add_column(name, justify="right")
        for i, beta in enumerate(np.asarray(self.beta)[1:]):
            rest = (
                f"{float(jnp.mean(x[i])):.4g}{' (mean)' if jnp.ndim(x[i]) else ''}" for x in self.parameters.values()
            )
            table.add_row(str(i + 1), f"{beta:.4g}", *rest)
        return rendered(table, width=100)


def found(out: Evaluation) -> Schedule:
    """Return the schedule that an adaptive run chose, to run again with it fixed.

    Args:
        out: the evaluation of a program with an adaptive schedule, outside of `jit`.

    Returns:
        A schedule, for `tempered`.

    Raises:
        ArgumentError: nothing was chosen, or it is not known yet, under `jit`.

    Example:
        >>> import blackjax, jax, numpyro.distributions as dist, steelyard as sy
        >>> from functools import partial
        >>> def model(s):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.1), 1.0)
        >>> hmc = partial(blackjax.hmc, num_integration_steps=5)
        >>> pilot = sy.evaluate(sy.algorithms.tempered(model, hmc, sy.adaptive()), jax.random.key(0), particles=200)
        >>> q = sy.algorithms.tempered(model, hmc, sy.found(pilot))
        >>> out = sy.evaluate(q, jax.random.key(1), particles=1000)
        >>> bool(abs(out.log_z - dist.Normal(0.0, 1.01**0.5).log_prob(1.0)) < 0.2)
        True
    """
    if out.found is None or is_traced(out.found.count):
        raise ArgumentError(
            "found: this evaluation has no schedule that was chosen on the way. Evaluate "
            "tempered(model, kernel, sy.adaptive()), and use its result outside of jit."
        )
    if np.ndim(out.found.count):
        raise ArgumentError(
            "found: these are several runs, each with a schedule of its own. Take one: out of a vmap, [0]."
        )
    count = int(out.found.count)
    steps = jax.tree.map(lambda x: jnp.asarray(x)[:count], dict(out.found.steps))
    beta = steps.pop("beta")
    return Schedule(jnp.concatenate([jnp.zeros_like(beta[:1]), beta]), steps)


def left_open(kernel: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters of a kernel that can be tuned and that nobody has fixed."""
    fixed: set[str] = set()
    while isinstance(kernel, partial):
        fixed |= set(kernel.keywords)
        kernel = kernel.func
    # BlackJAX's kernels are objects, whose function has the parameters.
    function = getattr(kernel, "differentiable", kernel)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"tempered: {name_of(kernel)} does not tell what parameters it has.") from error
    return tuple(name for name in TUNED if name in parameters and name not in fixed)


def tuned(
    names: tuple[str, ...], position: dict[str, Any], share: Any, factor: Any, options: Adaptive
) -> dict[str, Any]:
    """Return parameters for the kernel, from the particles in unconstrained coordinates and their weights."""
    rows = jax.vmap(lambda x: ravel_pytree(x)[0])(position)
    rows = jnp.where(jnp.isfinite(rows), rows, 0.0)
    # All particles follow what is chosen: on any number of devices it must be the same, so that sums are exact.
    centred = rows - total_in_any_order(share[:, None] * rows)[None]
    variance = total_in_any_order(share[:, None] * centred**2)
    # Before the particles have spread, and where all of them are copies of one.
    variance = jnp.where(variance > 0, variance, 1.0)
    size = rows.shape[-1]
    if "inverse_mass_matrix" in names:
        scale = jnp.asarray(size, rows.dtype) ** -0.25
    else:
        # The step of a Langevin kernel is a variance.
        scale = jnp.exp(jnp.mean(jnp.log(variance))) * jnp.asarray(size, rows.dtype) ** (-1 / 3) / 2
    matrix = variance
    if options.dense:
        # Shrunk towards the variances, more so for fewer particles: a matrix of full rank.
        weight = 1 / (1 + size * total_in_any_order(share**2))
        covariance = jax.lax.map(lambda row: total_in_any_order((share * row)[:, None] * centred), centred.T)
        matrix = weight * covariance + (1 - weight) * jnp.diag(variance)
    chosen = {"step_size": factor * scale, "inverse_mass_matrix": matrix}
    return {name: chosen[name] for name in names}
