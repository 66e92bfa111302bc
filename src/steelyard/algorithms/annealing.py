"""Samplers that follow a path of densities: kernels carry the particles from each to the next.

The path is a sequence of programs, or a function that makes them of stacked parameters; with the latter all levels are
one `scan`, which compiles once.
"""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax

from steelyard import objectives
from steelyard.errors import ArgumentError
from steelyard.language.combinators import extend, move, propose, resample, scan
from steelyard.language.programs import Program, Programmable, program
from steelyard.language.variants import detach, prev
from steelyard.semantics.levels import Objective
from steelyard.types import Count

Kernels: TypeAlias = tuple[Programmable, Programmable]
Path: TypeAlias = Sequence[Programmable] | Callable[[Any], Programmable]
PathKernels: TypeAlias = Sequence[Kernels] | Callable[[Any], Kernels]


def ais(path: Path, kernels: PathKernels, over: tuple[Any, Any] | None = None, *, unroll: Count = 1) -> Program:
    """Annealed importance sampling, with any kernels.

        q_k = propose(extend(p_k, prev(reverse_k)), move(forward_k, q_{k-1}))

    Args:
        path: the initial proposal, and the target programs p_1, ..., p_K; or a function that makes each of them.
        kernels: for each target, the kernel that leads to it and the kernel that leads back; or a function that makes
            the pair. Both are called with the value of a program of the path and sample its variables anew.
        over: what the functions are called with: two pytrees, stacked along their first axes, of K + 1 and of K.
        unroll: as for `scan`.

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

    def level(q: Program, p: Programmable, forward: Programmable, reverse: Programmable) -> Program:
        return propose(extend(p, prev(reverse)), move(forward, q))

    return _anneal(level, path, kernels, over, unroll)


def avo(path: Path, kernels: PathKernels, over: tuple[Any, Any] | None = None, *, unroll: Count = 1) -> Program:
    """Annealed importance sampling, trained level by level with annealed variational objectives.

    Args:
        path: the initial proposal, and the target programs; or a function that makes each of them.
        kernels: for each target, the kernel that leads to it and the kernel that leads back; or a function.
        over: what the functions are called with, as for `ais`.
        unroll: as for `scan`.

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
        >>> bool(abs(out.loss + out.log_weight.mean()) < 1e-6)
        True
    """
    return nvi(path, kernels, over, resampling=False, objective=objectives.avo, unroll=unroll)


def nvi(
    path: Path,
    kernels: PathKernels,
    over: tuple[Any, Any] | None = None,
    *,
    resampling: bool = True,
    objective: Objective = objectives.reverse_kl,
    unroll: Count = 1,
    **options: Any,
) -> Program:
    """Nested variational inference: annealed importance sampling, trained level by level.

        q_k = propose(extend(p_k, prev(reverse_k)), move(forward_k, detach(resample(q_{k-1}))))

    Forward and reverse kernels learn, and so do the densities of the path. The last level is not resampled. With
    `reverse_kl` and `avo` the forward kernels are wrapped in `stick_the_landing`: what that leaves out is noise with
    mean zero. With `forward_kl` they are detached: that objective holds values fixed. An objective of your own says
    what it needs with `objectives.kernels_learn_by`.

    Args:
        path: the initial proposal, and the target programs; or a function that makes each of them.
        kernels: for each target, the kernel that leads to it and the kernel that leads back; or a function.
        over: what the functions are called with, as for `ais`.
        resampling: whether to resample between levels.
        objective: `objectives.reverse_kl` or `objectives.forward_kl`.
        unroll: as for `scan`.
        **options: `method` and `threshold` of `resample`.

    Returns:
        An inference program for the last target, with the objective at every level.

    Raises:
        ArgumentError: there is not one pair of kernels for each target.

    References:
        Zimmermann, Wu, Esmaeili and van de Meent (2021); Roeder, Wu and Duvenaud (2017).

    Example:
        >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
        >>> def path(b): return lambda s: s.sample("x", dist.Normal(b, 2.0 - b))
        >>> def kernel(s, x): return s.sample("x", dist.Normal(0.8 * x + 0.2, 0.6))
        >>> betas = jnp.linspace(0.0, 1.0, 6)
        >>> q = sy.algorithms.nvi(path, lambda k: (kernel, kernel), (betas, jnp.arange(5)))
        >>> [level.ess.shape for level in sy.evaluate(q, jax.random.key(0), particles=10).levels]
        [(5,), (5,)]
    """

    learning = getattr(objective, "kernels_learn_by", program)

    def level(q: Program, p: Programmable, forward: Programmable, reverse: Programmable) -> Program:
        before = resample(q, **options) if resampling else q
        return propose(extend(p, prev(reverse)), move(learning(forward), detach(before)), objective=objective)

    return _anneal(level, path, kernels, over, unroll)


def _anneal(
    level: Callable[..., Program], path: Any, kernels: Any, over: tuple[Any, Any] | None, unroll: Count
) -> Program:
    if over is not None:
        points, moves = over
        initial = path(jax.tree.map(lambda x: x[0], points))
        rest = jax.tree.map(lambda x: x[1:], points)
        return scan(lambda q, x: level(q, path(x[0]), *kernels(x[1])), initial, (rest, moves), unroll=unroll)
    if len(path) != len(kernels) + 1:
        raise ArgumentError(
            f"a path of {len(path)} programs, the initial proposal included, has {len(path) - 1} levels, but there are "
            f"{len(kernels)} pairs of kernels. Give one pair (forward, reverse) for each level."
        )
    q = program(path[0])
    for p, pair in zip(path[1:], kernels, strict=True):
        q = level(q, p, *pair)
    return q
