"""Sequential Monte Carlo: a program for each step, which samples a state and observes a datum."""

from collections.abc import Sequence
from typing import Any

from steelyard import objectives
from steelyard.errors import ArgumentError
from steelyard.language.combinators import compose, detach, propose, resample
from steelyard.language.programs import Program, Programmable, program
from steelyard.types import Function


def smc(steps: Sequence[Programmable], proposals: Sequence[Programmable] | None = None, **options: Any) -> Program:
    """Sequential Monte Carlo: the bootstrap filter, or a guided filter if there are proposals.

        q_t = compose(step_t, resample(q_{t-1}))                        bootstrap
        q_t = compose(propose(step_t, proposal_t), resample(q_{t-1}))   guided

    Args:
        steps: a program for each step. The first is called with the arguments of the whole, each of the others with
            the value of the one before it. Addresses differ from step to step.
        proposals: for each step a program that proposes its unobserved variables, called with the same arguments.
        **options: `method` and `threshold` of `resample`.

    Returns:
        An inference program for the composition of all steps. The last step is not resampled.

    Raises:
        ArgumentError: there is not one proposal for each step.

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
    return _filter(steps, proposals, None, **options)


def vsmc(steps: Sequence[Programmable], proposals: Sequence[Programmable], **options: Any) -> Program:
    """Variational sequential Monte Carlo: a guided filter, trained with the bound that it computes.

        loss = -E[log Z],    log Z = sum_t log mean_l v_t^l

    which holds because particles are resampled at every step. Gradients flow through the values of the particles; the
    score of the ancestors is left out, as is usual, which makes the gradient biased.

    Args:
        steps: a program for each step.
        proposals: for each step a program that proposes its unobserved variables.
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
    if options.get("threshold") is not None:
        raise ArgumentError("vsmc resamples at every step: its objective is the bound only then. Leave threshold out.")
    return _filter(steps, proposals, objectives.iwae, **options)


def nasmc(steps: Sequence[Programmable], proposals: Sequence[Programmable], **options: Any) -> Program:
    """Neural adaptive sequential Monte Carlo: a guided filter, trained with wake updates at every step.

    Args:
        steps: a program for each step.
        proposals: for each step a program that proposes its unobserved variables.
        **options: `method` and `threshold` of `resample`.

    Returns:
        An inference program with the objective `rws` at every step.

    Raises:
        ArgumentError: there is not one proposal for each step.

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
    return _filter(steps, [detach(g) for g in proposals], objectives.rws, **options)


def _filter(
    steps: Sequence[Programmable], proposals: Sequence[Programmable] | None, objective: Function | None, **options: Any
) -> Program:
    if not steps or proposals is not None and len(proposals) != len(steps):
        raise ArgumentError(f"{len(steps)} steps need one proposal each, got {len(proposals or ())}.")
    parts = (
        steps
        if proposals is None
        else [propose(p, g, objective=objective) for p, g in zip(steps, proposals, strict=True)]
    )
    q = program(parts[0])
    for part in parts[1:]:
        q = compose(part, resample(q, **options))
    return q
