"""The grammar of inference programs: a syntax tree of frozen records.

f ::= callable | rename(f, {...}) | prev(f) | detach(f) | stick_the_landing(f) | temper(f, beta)
p ::= f | extend(p, f)
q ::= p | resample(q) | compose(q', q) | propose(p, q) | move(f, q) | detach(q) | rename(q, {...}) | scan(step, q, xs)
    | mcmc(kernel, q) | metropolis(f, q) | transport(bijection, q)

Inside of step(q, x) of a scan, q is a `Carried`: the program so far.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MethodType
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

import jax

from steelyard.errors import GrammarError
from steelyard.output import hypertext
from steelyard.types import Method

# The evaluation of a program and its arguments, as `semantics/` has them.
E = TypeVar("E")
V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class Program:
    """What every combinator is: a frozen record of its parts. `semantics/judgement.py` has the rule of each.

    Example:
        >>> import steelyard as sy
        >>> isinstance(sy.resample(lambda s: None), sy.Program)
        True
    """

    def _repr_html_(self) -> str:
        return hypertext(self)


@dataclass(frozen=True, eq=False)
class Primitive(Program):
    """f: a callable `f(s, *args) -> value`, written for one particle.

    detach(f) and stick_the_landing(f) are the same callable, which treats gradients in another way; temper(f, beta) is
    the same with another power of what it observes. Two of them are equal if they hold the same object: callables with
    parameters need not be comparable.
    """

    f: Callable[..., Any]
    detached: bool = False
    sticks: bool = False
    power: Any = 1.0

    def _identity(self) -> tuple[Any, ...]:
        f = self.f
        parts = (id(f.__self__), id(f.__func__)) if isinstance(f, MethodType) else (id(f),)
        power = self.power if isinstance(self.power, float) else id(self.power)
        return (*parts, self.detached, self.sticks, power)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Primitive) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def name(self) -> str:
        """The name of the callable."""
        return name_of(self.f)

    @property
    def place(self) -> str:
        """The name of the callable and where it is written."""
        f = inspect.unwrap(self.f)
        while isinstance(f, partial):
            f = inspect.unwrap(f.func)
        function = f if inspect.isroutine(f) else type(f).__call__
        code = getattr(function, "__code__", None)
        return f"{self.name} ({code.co_filename}:{code.co_firstlineno})" if code else self.name


@dataclass(frozen=True)
class Prev(Program):
    """prev(f): f with every address renamed to its previous version."""

    f: "Kernel"


@dataclass(frozen=True)
class Rename(Program):
    """rename(q, {...}): q under other addresses."""

    q: Program
    addresses: tuple[tuple[str, str], ...]

    @property
    def new(self) -> dict[str, str]:
        """The mapping from old to new addresses."""
        return dict(self.addresses)


@dataclass(frozen=True)
class Extend(Program):
    """extend(p, f): p on a space that f extends."""

    p: "Target"
    f: "Kernel"


@dataclass(frozen=True)
class Compose(Program):
    """compose(q2, q1): q1, then q2 on its value."""

    q2: Program
    q1: Program


@dataclass(frozen=True)
class Propose(Program):
    """propose(p, q): q proposes for p."""

    p: "Target"
    q: Program
    objective: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Resample(Program):
    """resample(q): q's particles, drawn again in proportion to their weights."""

    q: Program
    method: Method = "systematic"
    threshold: float | None = None
    islands: int | None = None
    ring: float | None = None


@dataclass(frozen=True)
class Move(Program):
    """move(q2, q1): q1, then q2 on its value, which replaces what it samples again."""

    q2: Program
    q1: Program


@dataclass(frozen=True)
class Detach(Program):
    """detach(q): q, whose values and weights leave it without gradients."""

    q: Program


@dataclass(frozen=True, eq=False)
class Scan(Program):
    """scan(step, q, xs): q, then step(q, x) of that, and so on for every x."""

    step: "Callable[[Program, Any], Programmable]"
    q: Program
    xs: Any
    length: int
    unroll: int = 1
    keep: tuple[str, ...] | None = None
    remat: bool = False

    def build(self, q: Program, index: int) -> Program:
        """Return the program that the step with this index makes of q."""
        return program(self.step(q, jax.tree.map(lambda x: x[index], self.xs)))

    def unrolled_once(self) -> Program:
        """Return the program that this is: the last step of the scan over all but the last."""
        if self.length == 0:
            return self.q
        xs = jax.tree.map(lambda x: x[:-1], self.xs)
        return self.build(replace(self, xs=xs, length=self.length - 1), -1)


@dataclass(frozen=True, eq=False)
class Carried(Program, Generic[E, V]):
    """Inside a step: the program so far, whose evaluation at the arguments of the scan is known.

    Both are None where a step is only looked at. `density` is the program whose density the program so far denotes, if
    that is the same in all steps.
    """

    evaluation: E | None = None
    arguments: V | None = None
    density: Program | None = None


@dataclass(frozen=True, eq=False)
class Mcmc(Program):
    """mcmc(kernel, q): q's particles, moved by a Markov kernel that leaves the density of q invariant."""

    kernel: Callable[..., Any]
    q: Program
    steps: int = 1
    only: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Metropolis(Program):
    """metropolis(f, q): q's particles, moved by Metropolis-Hastings steps whose proposal is the program f."""

    f: "Kernel"
    q: Program
    steps: int = 1


@dataclass(frozen=True, eq=False)
class Transport(Program):
    """transport(bijection, q): q's particles, pushed through a bijection, which need not be comparable."""

    bijection: Any
    q: Program
    only: tuple[str, ...] | None = None

    def _identity(self) -> tuple[Any, ...]:
        return id(self.bijection), self.q, self.only

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transport) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


@dataclass(frozen=True, eq=False)
class Adapt(Program):
    """A scan over what is chosen from the particles themselves, until that is enough; `most` steps at most.

    `choose(engine, state, e, c0)` returns the next state and x, from the particles so far; `learn(state, levels)` the
    state after the step. A state is a dictionary, whose entry `done` ends the scan; the `example` is for looking at it.
    """

    step: "Callable[[Program, Any], Programmable]"
    q: Program
    choose: Callable[..., Any]
    learn: Callable[..., Any]
    state: Any
    example: Any
    most: int
    remedy: str = ""


Kernel: TypeAlias = Primitive | Prev | Rename
Target: TypeAlias = Kernel | Extend
Markov: TypeAlias = Mcmc | Metropolis
# What combinators take for a program: one, or a callable f(s, *args) that becomes one.
Programmable: TypeAlias = Program | Callable[..., Any]


def name_of(f: Any) -> str:
    """Return the name of a callable, or else of its class."""
    while isinstance(f, partial):
        f = f.func
    # BlackJAX's kernels are objects without a name, made of functions in a module that has it.
    inside = getattr(f, "differentiable", None)
    return inside.__module__.split(".")[-1] if inspect.isfunction(inside) else getattr(f, "__name__", type(f).__name__)


def is_kernel(q: Program) -> TypeGuard[Kernel]:
    """Tell whether q is a primitive program, the grammar's f."""
    while isinstance(q, Rename):
        q = q.q
    return isinstance(q, Primitive | Prev)


def is_target(q: Program) -> TypeGuard[Target]:
    """Tell whether q is a target program, the grammar's p."""
    return isinstance(q, Extend) or is_kernel(q)


def program(q: Programmable) -> Program:
    """Return q as a program: a callable becomes a primitive one."""
    if isinstance(q, Program):
        return q
    if callable(q):
        return Primitive(q)
    raise GrammarError(
        f"{q!r} is not a program. A program is a callable f(s, *args), or is made of such by extend, compose, "
        f"propose, resample, move, scan, mcmc, metropolis, transport, prev, rename, detach and temper."
    )


def subprograms(q: Program) -> Iterator[Program]:
    """Yield q and all programs that it is made of."""
    waiting = [q]
    while waiting:
        q = waiting.pop()
        yield q
        waiting += [part for _, part in parts(q)][::-1]


def parts(q: Program) -> list[tuple[str, Program]]:
    """Return the programs that q is made of at once, with the names of the fields that hold them."""
    values = ((field.name, getattr(q, field.name)) for field in fields(q))
    return [(name, value) for name, value in values if isinstance(value, Program)]
