"""The same program under other addresses, with other gradients or another temperature."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from steelyard.errors import AddressError, ArgumentError
from steelyard.language.addresses import check_address, variable
from steelyard.language.describe import expected
from steelyard.language.programs import (
    Detach,
    Kernel,
    Prev,
    Primitive,
    Programmable,
    Rename,
    Target,
    is_kernel,
    is_target,
    program,
)
from steelyard.language.rewrite import map_primitive
from steelyard.types import is_traced


def rename(q: Programmable, addresses: Mapping[str, str]) -> Rename:
    """Give variables of q other addresses; nothing else changes.

    Args:
        q: any program.
        addresses: from old to new addresses, no two of which may become the same.

    Returns:
        The same kind of program as q.

    Raises:
        AddressError: two addresses become one; or, when it runs, q has no such address.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def q(s): return s.sample("z", dist.Normal(0.0, 1.0))
        >>> list(sy.evaluate(sy.rename(q, {"z": "x"}), jax.random.key(0), particles=2).trace)
        ['x']
    """
    pairs = tuple(sorted(addresses.items()))
    for _, new in pairs:
        check_address(variable(new), "rename")
    news = [new for _, new in pairs]
    if twice := sorted({a for a in news if news.count(a) > 1}):
        raise AddressError(f"rename: more than one address becomes {twice[0]!r}. Give each a name of its own.")
    return Rename(program(q), pairs)


def prev(f: Programmable) -> Prev:
    """Let a kernel sample previous versions: every address `a` of f becomes `previous(a)`.

    This is what undoes a `move`: in `propose(extend(p, prev(kernel)), move(kernel, q))` the reverse kernel covers
    the values that the forward kernel replaced.

    Args:
        f: a primitive program.

    Returns:
        A primitive program.

    Raises:
        GrammarError: f is not primitive.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def kernel(s): return s.sample("v", dist.Normal(0.0, 1.0))
        >>> list(sy.evaluate(sy.prev(kernel), jax.random.key(0), particles=2).trace)
        ['v′']
    """
    f = program(f)
    if not is_kernel(f):
        raise expected("prev(f)", "f", "a primitive program: a callable, prev(f) or rename(f)", f, "prev of its parts")
    return Prev(f)


def detach(q: Programmable) -> Kernel | Detach:
    """Keep gradients from flowing out of a sampler, other than into the parameters of its densities.

    Of a primitive program: no variable is reparameterised; objectives use score-function terms for them. Of an
    inference program: values, trace and weights leave it under `stop_gradient`, and densities are evaluated again at
    the detached values. Samples and weights are the same as without.

    Args:
        q: any program.

    Returns:
        The same kind of program as q.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def guide(s, m): return s.sample("z", dist.Normal(m, 1.0))
        >>> value = lambda q: lambda m: sy.evaluate(q, jax.random.key(0), m, particles=3).value.mean()
        >>> float(jax.grad(value(guide))(0.5)), float(jax.grad(value(sy.detach(guide)))(0.5))
        (1.0, 0.0)
    """
    q = program(q)
    return map_primitive(q, lambda f: replace(f, detached=True)) if is_kernel(q) else Detach(q)


def stick_the_landing(f: Programmable) -> Kernel:
    """Evaluate the densities of f with the parameters of its distributions under `stop_gradient`.

    The gradient of a reverse KL divergence then has only its pathwise part. The part that is left out has expectation
    zero, and a variance that does not vanish at the optimum (Roeder, Wu and Duvenaud, 2017).

    Args:
        f: a primitive program with reparameterised variables.

    Returns:
        A primitive program.

    Raises:
        GrammarError: f is not primitive.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def guide(s, m): s.sample("z", dist.Normal(m, 1.0))
        >>> density = lambda q: lambda m: sy.log_density(q, {"z": 1.0}, m)
        >>> float(jax.grad(density(guide))(0.5)), float(jax.grad(density(sy.stick_the_landing(guide)))(0.5))
        (0.5, 0.0)
    """
    f = program(f)
    if not is_kernel(f):
        raise expected("stick_the_landing(f)", "f", "a primitive program", f, "stick_the_landing of its kernels")
    return map_primitive(f, lambda g: replace(g, sticks=True))


def temper(p: Programmable, beta: Float[Array, ""] | float) -> Target:
    """Raise the density of everything that a program observes to a power.

        rho(a)^beta for every a in dom(rho) - dom(tau)

    What is sampled stays as it is: `temper(model, 0)` is the prior, `temper(model, 1)` the model. Factors count as
    observed. Tempering twice multiplies the powers.

    Args:
        p: a target program; of an extended one, its marginal is tempered.
        beta: the power, not negative. It may be traced, as in a `scan` over temperatures.

    Returns:
        The same kind of program as p.

    Raises:
        GrammarError: p is not a target program.
        ArgumentError: beta is not one number, or is negative or NaN.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        >>> log_z = lambda q: sy.evaluate(q, jax.random.key(0), 1.3, particles=10).log_z
        >>> float(log_z(sy.temper(model, 0.0))), bool(log_z(sy.temper(model, 1.0)) == log_z(model))
        (0.0, True)
    """
    p = program(p)
    if not is_target(p):
        raise expected("temper(p, beta)", "p", "a target program: a callable, or an extend", p, "temper of its target")
    power = _power(beta)

    def tempered(f: Primitive) -> Primitive:
        return replace(f, power=power if isinstance(f.power, float) and f.power == 1 else f.power * power)

    return map_primitive(p, tempered)


def _power(beta: Any) -> Any:
    if np.ndim(beta) != 0 or not (is_traced(beta) or np.issubdtype(np.asarray(beta).dtype, np.number)):
        raise ArgumentError(f"temper: beta is one number, got {beta!r}.")
    if is_traced(beta):
        return beta
    if not np.asarray(beta) >= 0:
        raise ArgumentError(f"temper: beta is a power from 0 (the prior) to 1 (the model) or above, got {beta!r}.")
    return float(beta) if isinstance(beta, int | float) else jnp.asarray(beta)
