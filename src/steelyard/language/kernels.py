"""Markov kernels and bijections as combinators: they move the particles, and weights stay proper."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from steelyard.arguments import check_count
from steelyard.distributions.bijections import bijection_of
from steelyard.errors import ArgumentError
from steelyard.language.addresses import versioned
from steelyard.language.describe import expected
from steelyard.language.programs import Mcmc, Metropolis, Programmable, Transport, is_kernel, program
from steelyard.types import Count


def mcmc(kernel: Callable[..., Any], q: Programmable, *, steps: Count = 1, only: Sequence[str] | None = None) -> Mcmc:
    """Move the particles of q by a Markov kernel that leaves the density of q invariant.

        c1, tau1, rho1, w1 <- q(c0)    tau2 ~ K(tau1)    c2, tau2, rho2, w2 <- target(q)(c0)[tau2]
        ------------------------------------------------------------------------------------------
        c2, tau2, rho2, w1 <- mcmc(kernel, q)(c0)

    Weights and log Z stay what they were; values and densities are those at the new places. The kernel is given the log
    density in unconstrained coordinates (NumPyro's bijections of the supports, Jacobians included), of a dictionary by
    address. Discrete variables are held. No gradient flows out of the values; densities still learn.

    Args:
        kernel: `kernel(log_density) -> (init, step)` with `init(position) -> state` and `step(key, state) -> state,
            info`, where `state.position` is a position: BlackJAX's protocol. Fix its other arguments with
            `functools.partial`. It must leave the density invariant: a kernel without an acceptance step does not.
        q: any inference program.
        steps: how many steps each particle takes.
        only: the variables to move; all continuous ones, if None. A discrete variable that is named here is a part of
            the position as it is, for kernels of your own.

    Returns:
        An inference program for the same density.

    Raises:
        ArgumentError: the kernel is not a function, or a number makes no sense.
        AddressError: when it runs, q has no such variable.

    Example:
        >>> import blackjax, jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
        >>> from functools import partial
        >>> def model(s, x):
        ...     rate = s.sample("rate", dist.Gamma(2.0, 1.0))
        ...     s.observe("x", dist.Poisson(rate), x)
        >>> hmc = partial(blackjax.hmc, step_size=0.5, inverse_mass_matrix=jnp.ones(1), num_integration_steps=5)
        >>> def guide(s, x): s.sample("rate", dist.Gamma(3.0, 1.0))
        >>> q = sy.mcmc(hmc, sy.resample(sy.propose(model, guide)), steps=3)
        >>> out = sy.evaluate(q, jax.random.key(0), 4, particles=2000)
        >>> bool(abs(out.expect(lambda t: t["rate"]) - 3.0) < 0.2), bool(out.levels[-1].acceptance > 0.8)
        (True, True)
    """
    if not callable(kernel):
        raise ArgumentError(
            f"mcmc: a kernel is a function kernel(log_density) -> (init, step), got {kernel!r}. For example "
            f"functools.partial(blackjax.hmc, step_size=0.1, inverse_mass_matrix=..., num_integration_steps=10)."
        )
    if isinstance(only, str):
        raise ArgumentError(f"mcmc: only is a sequence of addresses, got {only!r}. Use only=[{only!r}].")
    names = None if only is None else tuple(map(versioned, only))
    return Mcmc(kernel, program(q), check_count(steps, "mcmc", "steps", least=0), names)


def metropolis(f: Programmable, q: Programmable, *, steps: Count = 1) -> Metropolis:
    """Move the particles of q by Metropolis-Hastings steps, whose proposal is a program.

        c1, tau1, rho1, w1 <- q(c0)    c', tau', rho' <- f(c1)    c2, tau2, rho2 <- target(q)(c0)[tau' over tau1]
        rho'' <- f(c2)[tau1]    alpha = rho2 rho'' / (rho1 rho')
        -----------------------------------------------------------------------------------------------------
        c2, tau2, rho2, w1 with probability min(1, alpha), else c1, tau1, rho1, w1 <- metropolis(f, q)(c0)

    The program may sample any of the variables of q, discrete ones too; it is called like the kernel of a `move`. Only
    the densities that depend on them are computed again. A step may change which variables there are: it is taken only
    where f at the new place can sample all that it replaced. No gradient flows out of the values; densities still
    learn.

    Args:
        f: a primitive program `f(s, value_of_q)` without observed variables and factors.
        q: any inference program.
        steps: how many steps each particle takes.

    Returns:
        An inference program for the same density.

    Raises:
        GrammarError: f is not primitive.
        ObservedKernelError: when it runs, f observes something.
        AddressError: when it runs, f samples a variable that q does not have.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
        >>> def model(s):
        ...     k = s.sample("k", dist.Categorical(jnp.array([0.1, 0.2, 0.7])))
        ...     return s.sample("x", dist.Normal(1.0 * k, 1.0))
        >>> def flip(s, x): s.sample("k", dist.Categorical(jnp.array([0.4, 0.3, 0.3])))
        >>> out = sy.evaluate(sy.metropolis(flip, model, steps=3), jax.random.key(0), particles=5000)
        >>> bool(abs(out.expect(lambda t: t["k"] == 2) - 0.7) < 0.03), bool(0 < out.levels[-1].acceptance < 1)
        (True, True)
    """
    f = program(f)
    if not is_kernel(f):
        raise expected(
            "metropolis(f, q)", "f", "a primitive program: a callable, prev(f) or rename(f)", f, "mcmc(f, q)"
        )
    return Metropolis(f, program(q), check_count(steps, "metropolis", "steps", least=0))


def transport(bijection: Any, q: Programmable, *, only: Sequence[str] | None = None) -> Transport:
    """Push the particles of q through a differentiable bijection.

        c1, tau1, rho1, w1 <- q(c0)
        ---------------------------------------------------------------------
        c1, T(tau1), rho1 / |det T'(tau1)|, w1 <- transport(T, q)(c0)

    Under substitution the values go back through the inverse. Weights stay, and gradients flow through the bijection:
    it may be learned. The value is that of q, before the transport.

    Args:
        bijection: one of NumPyro's transforms; an object with `forward`, `inverse` and `log_det`, for one particle; or
            with the methods of the bijections of distrax, flowjax and TFP. It is given the value of the variable, if
            there is one, and a dictionary by address, if there are more; NumPyro's transforms are given one variable
            after the other.
        q: any inference program.
        only: the variables to transport; all of them, if None.

    Returns:
        An inference program, for the density of q pushed forward.

    Raises:
        ArgumentError: this is no bijection.
        AddressError: when it runs, q has no such variable in all particles.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def base(s): return s.sample("x", dist.Normal(0.0, 1.0))
        >>> def goal(s): return s.sample("x", dist.LogNormal(0.3, 0.5))
        >>> t = [dist.transforms.AffineTransform(0.3, 0.5), dist.transforms.ExpTransform()]
        >>> q = sy.propose(goal, sy.transport(dist.transforms.ComposeTransform(t), base))
        >>> bool(abs(sy.evaluate(q, jax.random.key(0), particles=100).log_weight).max() < 1e-5)
        True
    """
    if isinstance(only, str):
        raise ArgumentError(f"transport: only is a sequence of addresses, got {only!r}. Use only=[{only!r}].")
    bijection_of(bijection)
    return Transport(bijection, program(q), None if only is None else tuple(map(versioned, only)))
