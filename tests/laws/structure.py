"""What can be read off a program without running it: its addresses, its depth, and what enumerating it costs."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import steelyard as sy
from steelyard.language.addresses import variable
from steelyard.language.programs import (
    Compose,
    Detach,
    Extend,
    Mcmc,
    Metropolis,
    Move,
    Prev,
    Primitive,
    Program,
    Propose,
    Rename,
    Resample,
    Scan,
    Transport,
)
from tests.laws.finite import Factor, Observe, Sample, Table, When, statements_of


class Domain(NamedTuple):
    """The addresses that some particle may have: how many values each sampled variable has, and what is observed.

    `sometimes` are the addresses that a particle may lack.
    """

    sizes: Mapping[str, int]
    observed: frozenset[str]
    sometimes: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.observed | frozenset(self.sizes)

    def __or__(self, other: "Domain") -> "Domain":  # type: ignore[override]
        return Domain({**self.sizes, **other.sizes}, self.observed | other.observed, self.sometimes | other.sometimes)

    def rename(self, new: Mapping[str, str]) -> "Domain":
        def renamed(addresses: frozenset[str]) -> frozenset[str]:
            return frozenset(new.get(a, a) for a in addresses)

        sizes = {new.get(a, a): n for a, n in self.sizes.items()}
        return Domain(sizes, renamed(self.observed), renamed(self.sometimes))


def table_of(q: Primitive) -> Table:
    """Return the table that a generated primitive program was made from."""
    assert isinstance(q.f, Table)
    return q.f


def domain(q: Program) -> Domain:
    """Return dom(tau) and dom(rho) - dom(tau), over all particles that there can be."""
    match q:
        case Primitive():
            statements = table_of(q).statements
            sizes = {s.address: len(s.rows[0]) for s in statements_of(statements) if isinstance(s, Sample)}
            observed = {s.address for s in statements_of(statements) if isinstance(s, Observe | Factor)}
            always = {s.address for s in statements if not isinstance(s, When)}
            return Domain(sizes, frozenset(observed), frozenset((sizes.keys() | observed) - always))
        case Prev(f):
            inner = domain(f)
            return inner.rename({a: sy.previous(a) for a in inner.all})
        case Rename(inner, _):
            return domain(inner).rename(q.new)
        case Extend(p, f):
            return domain(p) | domain(f)
        case Compose(q2, q1):
            return domain(q1) | domain(q2)
        case Propose(p, _):
            return domain(sy.marginal(p))
        case Resample(inner, _, _) | Detach(inner) | Mcmc(_, inner) | Metropolis(_, inner) | Transport(_, inner):
            return domain(inner)
        case Move(f, inner):
            return domain(f) | older(domain(inner), domain(f))
        case Scan():
            # A step leaves the addresses that it finds, but for those that are dropped.
            return domain(q.q)


def older(of: Domain, moved: Domain) -> Domain:
    """Return what becomes of a domain when a kernel samples or observes some of its addresses."""
    return of.rename({a: sy.previous(a) for a in of.all if variable(a) in moved.all})


def parts(q: Program) -> tuple[Program, ...]:
    """Return the programs that q is made of."""
    match q:
        case Primitive():
            return ()
        case Prev(f):
            return (f,)
        case Rename(inner, _) | Resample(inner, _, _) | Detach(inner) | Mcmc(_, inner) | Transport(_, inner):
            return (inner,)
        case Metropolis(f, inner):
            return (f, inner)
        case Scan():
            return (q.q, written_out(q)) if q.length else (q.q,)
        case Extend(p, f):
            return (p, f)
        case Compose(q2, q1):
            return (q2, q1)
        case Propose(p, inner):
            return (p, inner)
        case Move(f, inner):
            return (f, inner)


def written_out(q: Scan) -> Program:
    """Return the program that a scan is, which keeps everything."""
    whole = q.q
    for number in range(q.length):
        whole = q.build(whole, number)
    return whole


def keeps(q: Program) -> bool:
    """Tell whether a program is a filter, which has no density of its own."""
    return keeps(q.q) if isinstance(q, Resample) else isinstance(q, Scan) and q.keep is not None


def density_of(q: Program) -> Program:
    """Return the program whose density q denotes; of a filter, over all that it ever sampled."""
    match q:
        case Resample(inner, _, _):
            return density_of(inner)
        case Scan() if q.keep is not None:
            return sy.target(written_out(q))
        case _:
            return sy.target(q)


def depth(q: Program) -> int:
    """Return how many combinators there are on the longest way from the whole program to a primitive one."""
    return 1 + max(map(depth, parts(q))) if parts(q) else 0


def subprograms(q: Program) -> Iterator[Program]:
    """Yield q and everything it is made of."""
    yield q
    for part in parts(q):
        yield from subprograms(part)


class Cost(NamedTuple):
    """How many outcomes the particles have together, and how often a rule runs to enumerate them."""

    outcomes: float
    runs: float

    def then(self, next_step: "Cost") -> "Cost":
        """Return the cost of a step that is taken from each outcome of this one."""
        outcomes = self.outcomes * next_step.outcomes
        return Cost(outcomes, self.runs + self.outcomes * next_step.runs + outcomes)


def cost(q: Program, particles: int, given: frozenset[str] = frozenset()) -> Cost:
    """Return an upper bound of what it costs to enumerate q, under substitution for the given addresses."""
    match q:
        case Primitive() | Prev() | Rename(Primitive() | Prev(), _):
            each = math.prod(n for a, n in domain(q).sizes.items() if a not in given)
            return Cost(each**particles, each**particles)
        case Rename(inner, _):
            return cost(inner, particles, given)
        case Extend(first, last) | Compose(last, first) | Move(last, first):
            return cost(first, particles, given).then(cost(last, particles, given))
        case Propose(p, inner):
            return cost(inner, particles).then(cost(p, particles, frozenset(domain(inner).sizes)))
        case Resample(inner, method, _):
            return cost(inner, particles).then(Cost(_ancestors(method, particles), 0.0))
        case Detach(inner) | Transport(_, inner):
            return cost(inner, particles, given)
        case Mcmc(kernel, inner):
            total = cost(inner, particles, given)
            for _ in range(q.steps):
                total = total.then(Cost(kernel.size**particles, kernel.size**particles))
            return total
        case Metropolis(f, inner):
            total = cost(inner, particles, given)
            for _ in range(q.steps):
                total = total.then(cost(f, particles)).then(Cost(2.0**particles, 0.0))
            return total
        case Scan():
            return cost(written_out(q), particles, given)


def _ancestors(method: str, size: int) -> float:
    """Return how many pieces of noise a resampler has at most: rotations, and intervals of each uniform."""
    match method:
        case "systematic":
            return size * size
        case "stratified":
            return size * 2 ** (size - 1)
        case "multinomial":
            return size**size
        case _:
            return size * size ** (size - 1)
