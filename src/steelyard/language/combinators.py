"""The combinators: functions that build programs and check the grammar at once."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import jax
import numpy as np

from steelyard.arguments import check_count, check_objective
from steelyard.errors import ArgumentError
from steelyard.language.describe import expected
from steelyard.language.programs import (
    Compose,
    Extend,
    Move,
    Program,
    Programmable,
    Propose,
    Resample,
    Scan,
    is_kernel,
    is_target,
    program,
)
from steelyard.types import Count, Function, Method


def extend(p: Programmable, f: Programmable) -> Extend:
    """Extend the density of a target with the variables of a kernel, which runs on the target's value.

        [[extend(p, f)]](tau_1 + tau_2) = [[p(c0)]](tau_1) [[f(c1)]](tau_2)

    The kernel integrates to one, so that p is the marginal; `propose` drops f's variables from its result. Nothing is
    reweighted here.

    Args:
        p: a target program: a callable, or an extend.
        f: a primitive program `f(s, value_of_p)` without observed variables and factors.

    Returns:
        A target program. Run on its own it returns f's value.

    Raises:
        GrammarError: p is not a target program, or f is not primitive.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def p(s): return s.sample("z", dist.Normal(0.0, 1.0))
        >>> def f(s, z): return s.sample("u", dist.Normal(z, 1.0))
        >>> sorted(sy.evaluate(sy.extend(p, f), jax.random.key(0), particles=2).trace)
        ['u', 'z']
    """
    p, f = program(p), program(f)
    if not is_target(p):
        raise expected("extend(p, f)", "p", "a target program: a callable, or an extend", p, "target(q)")
    if not is_kernel(f):
        raise expected("extend(p, f)", "f", "a primitive program: a callable, prev(f) or rename(f)", f, "extend twice")
    return Extend(p, f)


def compose(q2: Programmable, q1: Programmable) -> Compose:
    """Run q1, then q2 on its value.

        c1, tau1, rho1, w1 <- q1(c0)    c2, tau2, rho2, w2 <- q2(c1)
        ------------------------------------------------------------
        c2, tau2 + tau1, rho2 + rho1, w2 w1 <- compose(q2, q1)(c0)

    Both may be weighted. Where q2 resamples, what q1 left is resampled along with it.

    Args:
        q2: the program that runs last, as `q2(s, value_of_q1)`.
        q1: the program that runs first.

    Returns:
        An inference program. Its weight is the product of the two.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def first(s): return s.sample("z", dist.Normal(0.0, 1.0))
        >>> def second(s, z): return s.sample("u", dist.Normal(z, 1.0))
        >>> sorted(sy.evaluate(sy.compose(second, first), jax.random.key(0), particles=2).trace)
        ['u', 'z']
    """
    return Compose(program(q2), program(q1))


def propose(p: Programmable, q: Programmable, *, objective: Function | None = None) -> Propose:
    """Use the samples of q as proposals for p.

        c1, tau1, rho1, w1 <- q(c0)    c2, tau2, rho2, w2 <- p(c0)[tau1]    c3, tau3, rho3, w3 <- marginal(p)(c0)[tau2]
        u1 = product of rho1 over dom(rho1) - (dom(tau1) - dom(tau2))
        ---------------------------------------------------------------------------------------------------------------
        c3, tau3, rho3, w2 w1 / u1 <- propose(p, q)(c0)

    Variables of p that q does not sample come from p's prior; those of q that p does not know are left out of the
    weight. The result is properly weighted for `marginal(p)`.

    Args:
        p: a target program: a callable, or an extend.
        q: any inference program, called with the same arguments as p.
        objective: a function of the `Level` that is compared here, in place of the one that `evaluate` is given.

    Returns:
        An inference program for `marginal(p)`.

    Raises:
        GrammarError: p is not a target program.
        ArgumentError: the objective is not a function.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        ...     return z
        >>> def guide(s, x): return s.sample("z", dist.Normal(0.8 * x, 0.6))
        >>> out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), 1.3, particles=1000)
        >>> bool(abs(out.log_z - dist.Normal(0.0, 1.25**0.5).log_prob(1.3)) < 0.05)
        True
    """
    p, q = program(p), program(q)
    if not is_target(p):
        raise expected("propose(p, q)", "p", "a target program: a callable, or an extend", p, "propose(target, q)")
    return Propose(p, q, check_objective(objective, "propose"))


def resample(
    q: Programmable,
    *,
    method: Method = "systematic",
    threshold: float | None = None,
    islands: Count | None = None,
    ring: float | None = None,
) -> Resample:
    """Draw the particles of q again, each ancestor in proportion to its weight.

        c1, tau1, rho1, w1 <- q(c0)    a ~ resample(w1)
        ---------------------------------------------------------------
        c1[a], tau1[a], rho1[a], mean(w1) <- resample(q)(c0)

    Every particle leaves with the average weight. With a threshold the particles and their weights pass unchanged where
    the effective sample size is large enough; both cases are properly weighted.

    With islands, groups of particles are resampled each on its own, and each particle leaves with the average weight of
    its island. On many devices nothing but these averages is then sent from one to another. The price is that islands
    of small weight are carried along. With a threshold too, all particles are resampled together where the effective
    number of islands, by their weights, is below this fraction of the islands; that is properly weighted for particles
    that are exchangeable, as those of any program are.

    With a ring, this share of each island goes on to the next island after every resampling, the last one's to the
    first, and takes its weight with it. One device then sends some particles to one other. Good particles spread by
    one island a step.

    Args:
        q: any inference program.
        method: `systematic`, `stratified`, `multinomial` or `residual`. With each of them, every single particle takes
            ancestor k with probability w_k / sum(w).
        threshold: resample only where the effective sample size is below this fraction of the number of particles; with
            islands, resample all particles together where the effective number of islands is below this fraction.
        islands: how many groups of neighbours are resampled on their own; the particles must be a multiple of it, and
            on a mesh it must be a multiple of the devices.
        ring: with islands, which share of the particles of each goes on to the next, in (0, 1); at least one goes.

    Returns:
        An inference program for the same density.

    Raises:
        ArgumentError: the method is unknown, the threshold is not in (0, 1], there is no positive number of islands, or
            the ring is not a share in (0, 1), or has no islands.

    Example:
        >>> import jax, steelyard as sy
        >>> def q(s): s.factor("score", 0.5)
        >>> out = sy.evaluate(sy.resample(q, method="residual"), jax.random.key(0), particles=3)
        >>> out.log_weight
        Array([0.5, 0.5, 0.5], dtype=float32)

    References:
        Vergé, Dubarry, Del Moral and Moulines, 2015. On parallel implementation of sequential Monte Carlo methods: the
        island particle model. Whiteley, Lee and Heine, 2016. On the role of interaction in sequential Monte Carlo
        algorithms. Heine and Whiteley, 2017. Fluctuations, stability and instability of a distributed particle filter
        with local exchange.
    """
    if method not in get_args(Method):
        raise ArgumentError(f"resample: unknown method {method!r}; choose one of {', '.join(get_args(Method))}.")
    if threshold is not None and not 0 < threshold <= 1:
        raise ArgumentError(
            f"resample: threshold is a fraction of the number of particles, in (0, 1], got {threshold!r}."
        )
    islands = None if islands is None else check_count(islands, "resample", "islands")
    if ring is not None and not 0 < ring < 1:
        raise ArgumentError(f"resample: ring is a share of the particles of an island, in (0, 1), got {ring!r}.")
    if ring is not None and islands is None:
        raise ArgumentError(
            "resample: a ring is one of islands, and there are none. Say how many, for example islands=8."
        )
    return Resample(program(q), method, threshold, islands, ring)


def move(q2: Programmable, q1: Programmable) -> Move:
    """Run q1, then q2 on its value; what q2 samples again replaces the old value, which stays as its previous version.

        c1, tau1, rho1, w1 <- q1(c0)    c2, tau2, rho2, w2 <- q2(c1)
        ---------------------------------------------------------------------------------
        c2, tau2 + older(tau1), rho2 + older(rho1), w2 w1 <- move(q2, q1)(c0)

    where `older` renames every version of a variable that q2 samples or observes to its previous version. The weight
    does not change unless q2 is weighted: it is the `propose` around a move that reweights.

    Args:
        q2: the program that runs last, as `q2(s, value_of_q1)`; most often a kernel.
        q1: the program that runs first.

    Returns:
        An inference program.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def q(s): return s.sample("v", dist.Normal(0.0, 1.0))
        >>> def kernel(s, v): return s.sample("v", dist.Normal(v, 0.1))
        >>> sorted(sy.evaluate(sy.move(kernel, q), jax.random.key(0), particles=2).trace)
        ['v', 'v′']
    """
    return Move(program(q2), program(q1))


def scan(
    step: Callable[[Program, Any], Programmable],
    q: Programmable,
    xs: Any,
    *,
    length: Count | None = None,
    unroll: Count = 1,
    keep: Sequence[str] | None = None,
    remat: bool = False,
) -> Scan:
    """Build the next inference program from the last, again and again.

        q_0 = q        q_t = step(q_{t-1}, x_t)        scan(step, q, xs) = q_T

    The step is traced and compiled once, whatever the length. Samples, weights, densities, losses and gradients are
    those of the unrolled program. The levels of all steps are stacked.

    Args:
        step: `step(q, x) -> program`; for example one annealing level, one Gibbs sweep, one step of a filter.
        q: the program to begin with. It must have the addresses, shapes and types that the step leaves.
        xs: a pytree of arrays, whose first axis is the step; None, if steps do not differ.
        length: how many steps, where xs is None.
        unroll: how many steps to write out in a row: faster to run, slower to compile.
        keep: for filters, whose variables grow in number. Only the newest version of each variable stays in the
            trace, older ones are integrated out; those named here are recorded with the ancestry of the particles, for
            `Evaluation.trajectories` and `Evaluation.filtered`. With None nothing is dropped.
        remat: for gradients of long loops, compute each step again on the way back. Only the particles between the
            steps are kept then, so that memory hardly grows with their number; a step takes about a third longer.

    Returns:
        An inference program.

    Raises:
        ArgumentError: the length is not known, or a number makes no sense.
        LoopStructureError: when it runs, the step changes addresses, shapes or types.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, b): return s.sample("x", dist.Normal(b, 1.0))
        >>> def kernel(s, x): return s.sample("x", dist.Normal(0.8 * x, 0.6))
        >>> def level(q, b):
        ...     return sy.propose(sy.extend(lambda s: model(s, b), sy.prev(kernel)), sy.move(kernel, sy.resample(q)))
        >>> q = sy.scan(level, lambda s: model(s, 0.0), jnp.linspace(0.1, 1.0, 20))
        >>> out = sy.evaluate(q, jax.random.key(0), particles=1000)
        >>> bool(abs(out.log_z) < 0.5), out.levels[0].ess.shape
        (True, (20,))
    """
    length = None if length is None else check_count(length, "scan", "length", least=0)
    unroll = check_count(unroll, "scan", "unroll")
    sizes = {np.shape(x)[:1] for x in jax.tree.leaves(xs)} | ({(length,)} if length is not None else set())
    if len(sizes) != 1 or sizes == {()}:
        raise ArgumentError(
            f"scan: the arrays of xs need one first axis, the step, as long as `length` if that is given; their shapes "
            f"are {[np.shape(x) for x in jax.tree.leaves(xs)]}, length={length!r}."
        )
    return Scan(step, program(q), xs, sizes.pop()[0], unroll, None if keep is None else tuple(keep), remat)
