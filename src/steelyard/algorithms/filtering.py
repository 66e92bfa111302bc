"""Sequential Monte Carlo: a program for each step, which samples a state and observes a datum.

The steps are a sequence of programs, each with addresses of its own, whose trace is the whole trajectory; or a function
that makes them of data: then they are one `scan`, which keeps only the newest state and what it is asked to keep.
"""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from steelyard import objectives
from steelyard.errors import ArgumentError
from steelyard.language.combinators import compose, move, propose, resample, scan
from steelyard.language.programs import Program, Programmable, Propose, Resample, is_kernel, program
from steelyard.language.variants import detach

Steps: TypeAlias = Sequence[Programmable] | Callable[[Any], Programmable]


def smc(
    steps: Steps,
    proposals: Steps | None = None,
    over: Any = None,
    *,
    initial: Programmable | None = None,
    keep: Sequence[str] = (),
    **options: Any,
) -> Program:
    """Sequential Monte Carlo: the bootstrap filter, or a guided filter if there are proposals.

        q_t = compose(step_t, resample(q_{t-1}))                        bootstrap
        q_t = compose(propose(step_t, proposal_t), resample(q_{t-1}))   guided

    Args:
        steps: a program for each step. The first is called with the arguments of the whole, each of the others with
            the value of the one before it. Addresses differ from step to step. Or a function `steps(x)` that makes
            them, with the same addresses at each step.
        proposals: for each step a program that proposes its unobserved variables, called with the same arguments; or
            a function.
        over: what the functions are called with: a pytree whose first axis is the step, such as the data.
        initial: with functions, the program before the first step; it samples what a step samples.
        keep: with functions, the variables to record, for `Evaluation.trajectories` and `Evaluation.filtered`.
        **options: `method` and `threshold` of `resample`.

    Returns:
        An inference program for the composition of all steps. The last step is not resampled.

    Raises:
        ArgumentError: there is not one proposal for each step, or functions are given without data.

    References:
        Gordon, Salmond and Smith (1993); Doucet and Johansen (2009).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def step(t):
        ...     def f(s, z):
        ...         z = s.sample(f"z{t}", dist.Normal(0.9 * z, 1.0))
        ...         s.observe(f"x{t}", dist.Normal(z, 0.5), 0.3 * t)
        ...         return z
        ...     return f
        >>> out = sy.evaluate(sy.algorithms.smc([step(t) for t in range(4)]), jax.random.key(0), 0.0, particles=100)
        >>> [level.label for level in out.levels]
        ['resample', 'resample', 'resample']
    """
    return _filter(steps, proposals, _plain, over, initial, keep, **options)


def vsmc(
    steps: Steps,
    proposals: Steps,
    over: Any = None,
    *,
    initial: Programmable | None = None,
    keep: Sequence[str] = (),
    **options: Any,
) -> Program:
    """Variational sequential Monte Carlo: a guided filter, trained with the bound that it computes.

        loss = -E[log Z],    log Z = sum_t log mean_l v_t^l

    which holds because particles are resampled at every step. Gradients flow through the values of the particles; the
    score of the ancestors is left out, as is usual, which makes the gradient biased.

    Args:
        steps: a program for each step, or a function that makes them, as for `smc`.
        proposals: for each step a program that proposes its unobserved variables, or a function.
        over: what the functions are called with.
        initial: with functions, the program before the first step; what it observes is a part of the loss. One that
            is neither a callable, nor a propose, nor a resample of these brings its own objectives.
        keep: with functions, the variables to record.
        **options: `method` of `resample`.

    Returns:
        An inference program with the objective `iwae` at every step.

    Raises:
        ArgumentError: there is not one proposal for each step, or a threshold is given.

    References:
        Naesseth, Linderman, Ranganath and Blei (2018); Le et al. (2018); Maddison et al. (2017).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def step(s, x): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), x)
        >>> def guide(s, x): s.sample("z", dist.Normal(0.5 * x, 0.8))
        >>> out = sy.evaluate(sy.algorithms.vsmc([step], [guide]), jax.random.key(0), 1.0, particles=10)
        >>> bool(out.loss == -out.log_z)
        True
    """
    _check_trained("vsmc", proposals, options)
    return _filter(steps, proposals, _bound, over, initial, keep, **options)


def nasmc(
    steps: Steps,
    proposals: Steps,
    over: Any = None,
    *,
    initial: Programmable | None = None,
    keep: Sequence[str] = (),
    **options: Any,
) -> Program:
    """Neural adaptive sequential Monte Carlo: a guided filter, trained with wake updates at every step.

    Particles are resampled at every step: an update weighs them by their step alone.

    Args:
        steps: a program for each step, or a function that makes them, as for `smc`.
        proposals: for each step a program that proposes its unobserved variables, or a function.
        over: what the functions are called with.
        initial: with functions, the program before the first step, as for `vsmc`.
        keep: with functions, the variables to record.
        **options: `method` of `resample`.

    Returns:
        An inference program with the objective `rws` at every step.

    Raises:
        ArgumentError: there is not one proposal for each step, or a threshold is given.

    References:
        Gu, Ghahramani and Turner (2015).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def step(s, x): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), x)
        >>> def guide(s, x): s.sample("z", dist.Normal(0.5 * x, 0.8))
        >>> out = sy.evaluate(sy.algorithms.nasmc([step], [guide]), jax.random.key(0), 1.0, particles=10)
        >>> len(out.levels)
        1
    """
    _check_trained("nasmc", proposals, options)
    return _filter(steps, proposals, _wake, over, initial, keep, **options)


def _plain(p: Programmable, g: Programmable) -> Program:
    return propose(p, g)


def _bound(p: Programmable, g: Programmable) -> Program:
    return propose(p, g, objective=objectives.iwae)


def _wake(p: Programmable, g: Programmable) -> Program:
    return propose(p, detach(g), objective=objectives.rws)


def _proposed(initial: Program, guided: Callable[[Programmable, Programmable], Program]) -> Program:
    """Return the program before the first step as a step of its own, with the objective of a step unless it has one."""
    match initial:
        case Propose(p, q, None):
            return guided(p, q)
        case Resample():
            return replace(initial, q=_proposed(initial.q, guided))
        case _:
            # Proposed by itself: its weight is what it observes.
            return guided(initial, initial) if is_kernel(initial) else initial


def _check_trained(name: str, proposals: Any, options: Mapping[str, Any]) -> None:
    if proposals is None:
        raise ArgumentError(f"{name} trains proposals: give one for each step, or use smc.")
    if options.get("threshold") is not None:
        raise ArgumentError(
            f"{name} resamples at every step: its objective does not see weights of earlier ones. Leave threshold out."
        )


def _filter(
    steps: Any,
    proposals: Any,
    guided: Callable[[Programmable, Programmable], Program],
    over: Any,
    initial: Programmable | None,
    keep: Sequence[str],
    **options: Any,
) -> Program:
    if not isinstance(steps, Sequence):
        if over is None or initial is None:
            raise ArgumentError("a filter whose steps are a function needs the data, over=..., and initial=...")

        def step(q: Program, x: Any) -> Program:
            part = steps(x) if proposals is None else guided(steps(x), proposals(x))
            return move(part, resample(q, **options))

        start = program(initial)
        return scan(step, start if proposals is None else _proposed(start, guided), over, keep=keep)
    if over is not None or initial is not None or keep:
        raise ArgumentError("a filter whose steps are a list takes no over, initial or keep: they go with functions.")
    if not steps or proposals is not None and len(proposals) != len(steps):
        raise ArgumentError(f"{len(steps)} steps need one proposal each, got {len(proposals or ())}.")
    parts = steps if proposals is None else [guided(p, g) for p, g in zip(steps, proposals, strict=True)]
    q = program(parts[0])
    for part in parts[1:]:
        q = compose(part, resample(q, **options))
    return q
