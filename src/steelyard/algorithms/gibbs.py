"""Population Gibbs samplers: sweeps of kernels, each of which updates a block of variables; one `scan` over sweeps."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steelyard import objectives
from steelyard.language.combinators import extend, move, propose, resample, scan
from steelyard.language.programs import Program, Programmable
from steelyard.language.variants import detach, prev
from steelyard.types import Count


def gibbs(
    target: Programmable,
    initial: Programmable,
    kernels: Sequence[Programmable],
    sweeps: Count,
    *,
    unroll: Count = 1,
    **options: Any,
) -> Program:
    """Population Gibbs sampling, the paper's `pop_gibbs`.

        q_0 = propose(target, initial)
        q   = propose(extend(target, prev(kernel)), move(kernel, resample(q)))    for each kernel of each sweep

    Args:
        target: a target program, whose value has all that the kernels need.
        initial: a program that proposes the first particles.
        kernels: programs `kernel(s, value_of_target)`, which sample a block of variables anew.
        sweeps: how often to go through the kernels.
        unroll: as for `scan`.
        **options: `method` and `threshold` of `resample`.

    Returns:
        An inference program for the target.

    References:
        Wu, Zimmermann, Sennesh, Le and van de Meent (2020); Stites et al. (2021), Figure 2.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def target(s): return s.sample("a", dist.Normal(0.0, 1.0)), s.sample("b", dist.Normal(0.0, 1.0))
        >>> def update_a(s, value): s.sample("a", dist.Normal(0.0, 1.2))
        >>> def update_b(s, value): s.sample("b", dist.Normal(0.1, 1.0))
        >>> q = sy.algorithms.gibbs(target, target, [update_a, update_b], sweeps=2)
        >>> [level.ess.shape for level in sy.evaluate(q, jax.random.key(0), particles=10).levels]
        [(), (2,), (2,), (2,), (2,)]
    """

    def sweep(q: Program, _: Any) -> Program:
        for kernel in kernels:
            q = propose(extend(target, prev(kernel)), move(kernel, resample(q, **options)))
        return q

    return scan(sweep, propose(target, initial), None, length=sweeps, unroll=unroll)


def apg(
    target: Programmable,
    initial: Programmable,
    kernels: Sequence[Programmable],
    sweeps: Count,
    *,
    unroll: Count = 1,
    remat: bool = True,
    **options: Any,
) -> Program:
    """Amortized population Gibbs: population Gibbs sampling, trained with wake updates at every level.

    Args:
        target: a target program, whose value has all that the kernels need.
        initial: a program that proposes the first particles.
        kernels: programs `kernel(s, value_of_target)`, which sample a block of variables anew.
        sweeps: how often to go through the kernels.
        unroll: as for `scan`.
        remat: as for `scan`: with it, more sweeps need no more memory for their gradients.
        **options: `method` and `threshold` of `resample`.

    Returns:
        An inference program for the target with the objective `apg` at every level.

    References:
        Wu, Zimmermann, Sennesh, Le and van de Meent (2020).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def target(s): return s.sample("a", dist.Normal(0.0, 1.0)), s.sample("b", dist.Normal(0.0, 1.0))
        >>> def update_a(s, value): s.sample("a", dist.Normal(0.0, 1.2))
        >>> q = sy.algorithms.apg(target, target, [update_a], sweeps=2)
        >>> [level.loss.shape for level in sy.evaluate(q, jax.random.key(0), particles=10).levels]
        [(), (2,), (2,)]
    """

    def sweep(q: Program, _: Any) -> Program:
        for kernel in kernels:
            before = detach(resample(q, **options))
            q = propose(extend(target, prev(kernel)), move(detach(kernel), before), objective=objectives.apg)
        return q

    first = propose(target, detach(initial), objective=objectives.apg)
    return scan(sweep, first, None, length=sweeps, unroll=unroll, remat=remat)
