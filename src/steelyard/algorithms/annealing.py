"""Samplers that follow a path of densities: kernels carry the particles from each to the next."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from steelyard import objectives
from steelyard.errors import ArgumentError
from steelyard.language.combinators import detach, extend, move, prev, propose, resample
from steelyard.language.programs import Program, Programmable, program
from steelyard.semantics.levels import Objective

Kernels: TypeAlias = tuple[Programmable, Programmable]


def ais(path: Sequence[Programmable], kernels: Sequence[Kernels]) -> Program:
    """Annealed importance sampling, with any kernels.

        q_k = propose(extend(p_k, prev(reverse_k)), move(forward_k, q_{k-1}))

    Args:
        path: the initial proposal, and the target programs p_1, ..., p_K.
        kernels: for each target, the kernel that leads to it and the kernel that leads back. Both are called with the
            value of a program of the path and sample its variables anew.

    Returns:
        An inference program for the last target.

    Raises:
        ArgumentError: there is not one pair of kernels for each target.

    References:
        Neal (2001); Del Moral, Doucet and Jasra (2006).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def start(s): return s.sample("x", dist.Normal(0.0, 2.0))
        >>> def goal(s): return s.sample("x", dist.Normal(1.0, 1.0))
        >>> def kernel(s, x): return s.sample("x", dist.Normal(0.8 * x + 0.2, 0.6))
        >>> out = sy.evaluate(sy.algorithms.ais([start, goal], [(kernel, kernel)]), jax.random.key(0), particles=10_000)
        >>> bool(abs(out.log_z) < 0.1)
        True
    """
    q = program(path[0])
    for p, (forward, reverse) in _levels(path, kernels):
        q = propose(extend(p, prev(reverse)), move(forward, q))
    return q


def avo(path: Sequence[Programmable], kernels: Sequence[Kernels]) -> Program:
    """Annealed importance sampling, trained level by level with annealed variational objectives.

    Args:
        path: the initial proposal, and the target programs.
        kernels: for each target, the kernel that leads to it and the kernel that leads back.

    Returns:
        An inference program for the last target with the objective `avo` at every level.

    Raises:
        ArgumentError: there is not one pair of kernels for each target.

    References:
        Huang, Tan, Lacoste and Courville (2018).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def start(s): return s.sample("x", dist.Normal(0.0, 2.0))
        >>> def goal(s): return s.sample("x", dist.Normal(1.0, 1.0))
        >>> def kernel(s, x): return s.sample("x", dist.Normal(0.8 * x + 0.2, 0.6))
        >>> out = sy.evaluate(sy.algorithms.avo([start, goal], [(kernel, kernel)]), jax.random.key(0), particles=10)
        >>> bool(out.loss == -out.log_weight.mean())
        True
    """
    return nvi(path, kernels, resampling=False, objective=objectives.avo)


def nvi(
    path: Sequence[Programmable],
    kernels: Sequence[Kernels],
    *,
    resampling: bool = True,
    objective: Objective = objectives.reverse_kl,
    **options: Any,
) -> Program:
    """Nested variational inference: annealed importance sampling, trained level by level.

        q_k = propose(extend(p_k, prev(reverse_k)), move(forward_k, detach(resample(q_{k-1}))))

    Forward and reverse kernels learn, and so do the densities of the path. Resampling is after all but the last level.

    Args:
        path: the initial proposal, and the target programs.
        kernels: for each target, the kernel that leads to it and the kernel that leads back.
        resampling: whether to resample between levels.
        objective: `objectives.reverse_kl` or `objectives.forward_kl`.
        **options: `method` and `threshold` of `resample`.

    Returns:
        An inference program for the last target, with the objective at every level.

    Raises:
        ArgumentError: there is not one pair of kernels for each target.

    References:
        Zimmermann, Wu, Esmaeili and van de Meent (2021).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def start(s): return s.sample("x", dist.Normal(0.0, 2.0))
        >>> def goal(s): return s.sample("x", dist.Normal(1.0, 1.0))
        >>> def kernel(s, x): return s.sample("x", dist.Normal(0.8 * x + 0.2, 0.6))
        >>> q = sy.algorithms.nvi([start, goal, goal], [(kernel, kernel)] * 2)
        >>> len(sy.evaluate(q, jax.random.key(0), particles=10).levels)
        3
    """
    q = program(path[0])
    for number, (p, (forward, reverse)) in enumerate(_levels(path, kernels)):
        before = resample(q, **options) if resampling and number else q
        q = propose(extend(p, prev(reverse)), move(forward, detach(before)), objective=objective)
    return q


def _levels(path: Sequence[Any], kernels: Sequence[Kernels]) -> list[tuple[Programmable, Kernels]]:
    if len(path) != len(kernels) + 1:
        raise ArgumentError(
            f"a path of {len(path)} programs, the initial proposal included, has {len(path) - 1} levels, but there are "
            f"{len(kernels)} pairs of kernels. Give one pair (forward, reverse) for each level."
        )
    return list(zip(path[1:], kernels, strict=True))
