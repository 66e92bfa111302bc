"""What can be asked of a program without running it."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

from steelyard.engines.vectorized import Vectorized
from steelyard.errors import ArgumentError
from steelyard.language.describe import describe
from steelyard.language.programs import Program, Programmable, program
from steelyard.output import printable
from steelyard.semantics.values import Values


class Addresses(NamedTuple):
    """The addresses of a program: those it samples, dom(tau), and all that have a density, dom(rho).

    Example:
        >>> import steelyard as sy
        >>> sy.Addresses({"z"}, {"z", "x"}).observed
        {'x'}
    """

    trace: set[str]
    log_density: set[str]

    @property
    def observed(self) -> set[str]:
        """The addresses that are observed, or are factors."""
        return self.log_density - self.trace

    def __repr__(self) -> str:
        return printable(f"Addresses(trace={self.trace}, log_density={self.log_density})")


def addresses(q: Programmable, *args: Any) -> Addresses:
    """Return the addresses of a program, found by tracing it: nothing is run.

    Args:
        q: a program for the vectorized engine.
        *args: what q is called with, or arrays of the same shapes.

    Returns:
        dom(tau) and dom(rho), with the addresses that only some particles may have.

    Raises:
        ArgumentError: the program branches on what it sampled, so that its addresses are not fixed.

    Example:
        >>> import numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        >>> sy.addresses(model, 1.3).trace, sy.addresses(model, 1.3).observed
        ({'z'}, {'x'})
    """
    q = program(q)
    out = abstractly(lambda key: Vectorized(key, 1).run(q, Values.shared(args)), q)
    return Addresses(set(out.trace), set(out.log_density))


def abstractly(run: Any, q: Program) -> Any:
    """Trace `run(key)` without running it."""
    with explained(q):
        return jax.eval_shape(run, jax.random.key(0))


@contextmanager
def explained(q: Program) -> Iterator[None]:
    """Say what to do about a program that needs concrete values where there are none."""
    try:
        yield
    except jax.errors.ConcretizationTypeError as error:
        raise ArgumentError(
            f"{describe(q)} branches on what it sampled, so that its addresses are known only when it runs. "
            f'Use evaluate(..., engine="universal"), or s.when(flag) in place of the condition.'
        ) from error
