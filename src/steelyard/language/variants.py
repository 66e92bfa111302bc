"""The same program under other addresses, or with other gradients: rename, prev, detach, stick_the_landing."""

from collections.abc import Mapping
from dataclasses import replace

from steelyard.errors import AddressError
from steelyard.language.addresses import check_address, variable
from steelyard.language.programs import Detach, Kernel, Prev, Programmable, Rename, expected, is_kernel, program
from steelyard.language.rewrite import map_primitive


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
