"""Sequential Monte Carlo samplers that let the data in little by little, and move the particles by a Markov kernel."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from steelyard.algorithms.powers import next_power
from steelyard.algorithms.schedules import Adaptive, Schedule, left_open, tuned
from steelyard.engines.positions import positions
from steelyard.errors import ArgumentError
from steelyard.language.combinators import propose, resample, scan
from steelyard.language.kernels import mcmc
from steelyard.language.programs import Adapt, Program, Programmable, program
from steelyard.language.variants import temper
from steelyard.maps import dom, log_product
from steelyard.particles.weights import normalize_in_any_order
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import Count, is_traced


def tempered(
    model: Programmable,
    kernel: Callable[..., Any],
    schedule: Adaptive | Schedule | Float[Array, " levels"] | Sequence[float],
    *,
    initial: Programmable | None = None,
    steps: Count = 1,
    only: Sequence[str] | None = None,
    threshold: float | None = 0.5,
    **options: Any,
) -> Program:
    """Tempered sequential Monte Carlo: from the prior to the posterior, through powers of the likelihood.

        q_0 = temper(model, beta_0)
        q_k = mcmc(kernel_k, resample(propose(temper(model, beta_k), q_{k-1})))

    With a schedule that is fixed this is properly weighted, and one `scan`. With `adaptive()` it is not quite: see
    there. No gradient flows through an adaptive schedule.

    Args:
        model: a target program; what it observes is tempered.
        kernel: a Markov kernel, as for `mcmc`. Parameters that it leaves open come from the schedule.
        schedule: powers of the likelihood, rising to 1, the first that of the initial particles; a `Schedule`, which
            also has parameters for the kernel; or `adaptive(...)`.
        initial: a program that proposes the first particles; the prior, if None.
        steps: how many steps of the kernel at each power.
        only: the variables to move, as for `mcmc`.
        threshold: where the effective sample size is below this fraction of the particles, they are resampled.
        **options: `method` of `resample`.

    Returns:
        An inference program for the model.

    Raises:
        ArgumentError: the schedule does not rise from 0 or more to 1.

    References:
        Neal (2001); Del Moral, Doucet and Jasra (2006); Dai, Heng, Jacob and Whiteley (2022).

    Example:
        >>> import blackjax, jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
        >>> from functools import partial
        >>> def model(s):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.1), 1.0)
        >>> hmc = partial(blackjax.hmc, step_size=0.1, inverse_mass_matrix=jnp.ones(1), num_integration_steps=5)
        >>> q = sy.algorithms.tempered(model, hmc, jnp.linspace(0.0, 1.0, 10) ** 3)
        >>> out = sy.evaluate(q, jax.random.key(0), particles=1000)
        >>> bool(abs(out.log_z - dist.Normal(0.0, 1.01**0.5).log_prob(1.0)) < 0.2)
        True
    """
    model = program(model)

    def level(q: Program, x: dict[str, Any]) -> Program:
        found = {name: value for name, value in x.items() if name != "beta"}
        moved = partial(kernel, **found) if found else kernel
        before = propose(temper(model, x["beta"]), q)
        return mcmc(moved, resample(before, threshold=threshold, **options), steps=steps, only=only)

    def start(beta: Any) -> Program:
        p = temper(model, beta)
        return p if initial is None else propose(p, initial)

    if isinstance(schedule, Adaptive):
        return _adapted(model, kernel, schedule, level, start(0.0), only)
    fixed = schedule if isinstance(schedule, Schedule) else Schedule(jnp.asarray(schedule, float))
    _check(fixed)
    xs = {"beta": fixed.beta[1:], **fixed.parameters}
    return scan(level, start(fixed.beta[0]), xs)


def _check(schedule: Schedule) -> None:
    if np.ndim(schedule.beta) != 1 or np.size(schedule.beta) < 1:
        raise ArgumentError(
            f"tempered: the schedule is a row of powers, got an array of shape {np.shape(schedule.beta)}."
        )
    if is_traced(schedule.beta):
        return
    beta = np.asarray(schedule.beta)
    if not (beta[0] >= 0 and (np.diff(beta) >= 0).all() and beta[-1] == 1):
        raise ArgumentError(
            f"tempered: the powers of the schedule rise from 0, the prior, to 1, the model; got {beta[0]:g} to "
            f"{beta[-1]:g}{'' if (np.diff(beta) >= 0).all() else ', not always rising'}. For example "
            f"jnp.linspace(0.0, 1.0, 20) ** 3, or sy.adaptive()."
        )


def _adapted(
    model: Program, kernel: Callable[..., Any], options: Adaptive, level: Any, start: Program, only: Any
) -> Adapt:
    """Return the program that chooses its temperatures and the parameters of its kernel."""
    names = left_open(kernel)

    def choose(engine: Any, state: dict[str, Any], e: Evaluation, c0: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        at = engine.at(model, c0, e.trace)
        log_likelihood = log_product(at.log_density, dom(at.log_density) - dom(at.trace), engine.log_one)
        beta = next_power(
            jnp.asarray(e.log_weight), jnp.asarray(log_likelihood), jnp.asarray(state["beta"]), options.ess
        )
        x = {"beta": beta}
        if names:
            power = beta - state["beta"]
            log_share = jnp.asarray(e.log_weight) + jnp.where(power > 0, power * log_likelihood, 0.0)
            share = normalize_in_any_order(log_share)
            x |= tuned(names, positions(engine, model, c0, e.trace, only), share, state["step_size"], options)
        return state | {"beta": beta, "done": beta >= 1}, x

    def learn(state: dict[str, Any], levels: Any) -> dict[str, Any]:
        factor = jnp.exp(levels[-1].acceptance - options.acceptance)
        return state | {"step_size": state["step_size"] * jnp.where(jnp.isnan(factor), 1.0, factor)}

    remedy = f"Raise most above {options.most}, lower ess below {options.ess:g}, or give the kernel more steps"
    state = {"beta": jnp.zeros(()), "step_size": jnp.ones(()), "done": jnp.asarray(False)}
    return Adapt(level, start, choose, learn, state, {"beta": 1.0}, options.most, remedy)
