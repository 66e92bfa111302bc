"""What a generated program contains: the tests assert that the whole grammar was really generated."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import steelyard as sy
from steelyard.compiler.reuse import EquationCache
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
    is_kernel,
)
from tests.laws.finite import Factor, Observe, statements_of
from tests.laws.inference import METHODS
from tests.laws.scans import Step
from tests.laws.strategies import Example
from tests.laws.structure import density_of, depth, domain, subprograms, table_of

FORMS = {
    Primitive: "a callable",
    Rename: "rename",
    Prev: "prev",
    Extend: "extend",
    Compose: "compose",
    Propose: "propose",
    Resample: "resample",
    Move: "move",
    Detach: "detach",
    Scan: "scan",
    Mcmc: "mcmc",
    Metropolis: "metropolis",
    Transport: "transport",
}

VALUES = {"nothing": "no value", "pair": "a tree of values", "argument": "the argument as the value"}

EVERYTHING = (
    *FORMS.values(),
    *(f"{form} as a proposal" for form in FORMS.values()),
    *(f"{method} resampling" for method in METHODS),
    *(f"{method} resampling, with a threshold" for method in METHODS),
    *(f"{method} resampling of three weights" for method in METHODS),
    "a threshold",
    "islands",
    "a ring of islands",
    "rename of an inference program",
    "extend of an extend",
    "move of a move",
    "compose of two weighted programs",
    "compose of two proposes",
    "compose of a weighted program after a resample",
    "compose of a resample after a weighted program",
    "a resample inside of a propose, after another program",
    "propose(extend(p, prev(f)), move(f, resample(q)))",
    "detach of a callable",
    *(f"a scan of length {length}" for length in range(4)),
    "a scan that keeps",
    "a scan in a scan",
    "a scan with a threshold",
    "a scan that detaches",
    "a scan of two sweeps",
    "a scan with other numbers in each step",
    "two sweeps for one target",
    "a tempered program",
    "a scan with metropolis",
    "metropolis of several steps",
    "metropolis with a variable that only some particles have",
    "metropolis that may change which variables there are",
    "metropolis after a transport",
    "a kernel with weights of its own",
    "a kernel that observes what its target observes",
    "a kernel that observes what its target samples",
    "a missing variable",
    "a superfluous variable",
    "a variable that only some proposals have",
    "a variable that only some targets have",
    "a proposed variable that the target observes",
    "a proposal with more values than its target",
    "an observed variable",
    "a factor",
    "a weight of zero",
    "no variable at all",
    *VALUES.values(),
    "1 particles",
    "2 particles",
    "3 particles",
    "depth 4 or more",
)


def features(example: Example) -> frozenset[str]:
    """Return what there is in an example. Resampling counts where it has something to choose from."""
    found = {f"{example.particles} particles"}
    if depth(example.q) >= 4:
        found.add("depth 4 or more")
    if not domain(example.q).sizes:
        found.add("no variable at all")
    for q in subprograms(example.q):
        found.add(FORMS[type(q)])
        found.update(_of_program(q, several=example.particles > 1))
        if isinstance(q, Resample) and example.particles == 3 and q.islands is None and _weighted(q.q):
            found.add(f"{q.method} resampling of three weights")
    return frozenset(found)


def _of_program(q: Program, *, several: bool) -> Iterator[str]:
    match q:
        case Primitive():
            yield from _of_primitive(q)
        case Rename(inner, _) if not is_kernel(inner):
            yield "rename of an inference program"
        case Metropolis(f, inner, steps):
            if steps > 1:
                yield "metropolis of several steps"
            if domain(f).all & domain(inner).sometimes:
                yield "metropolis with a variable that only some particles have"
            if domain(inner).sometimes & domain(inner).sizes.keys() and domain(f).all - domain(inner).sometimes:
                yield "metropolis that may change which variables there are"
            if isinstance(inner, Transport):
                yield "metropolis after a transport"
        case Scan():
            yield from _of_scan(q, several=several)
        case Extend(Extend(), _):
            yield "extend of an extend"
        case Move(_, Move()):
            yield "move of a move"
        case Resample(_, method, threshold, islands, ring) if several:
            if islands is not None:
                yield "islands" if ring is None else "a ring of islands"
                return
            yield f"{method} resampling" + ("" if threshold is None else ", with a threshold")
            if threshold is not None:
                yield "a threshold"
        case Compose(q2, q1):
            yield from _of_compose(q2, q1, several=several)
        case Propose(p, inner):
            yield from _of_propose(p, inner)


def _of_scan(q: Scan, *, several: bool) -> Iterator[str]:
    assert isinstance(q.step, Step)
    inside = [part for part in subprograms(q.step.template) if part is not q.step.hole]
    yield f"a scan of length {q.length}"
    if q.length < 1:
        return
    if q.keep is not None:
        yield "a scan that keeps"
    if any(isinstance(part, Scan) and part.length for part in inside):
        yield "a scan in a scan"
    if several and any(isinstance(part, Resample) and part.threshold is not None for part in inside):
        yield "a scan with a threshold"
    if any(isinstance(part, Detach) for part in inside):
        yield "a scan that detaches"
    if any(isinstance(part, Metropolis) for part in inside):
        yield "a scan with metropolis"
    sweeps = [part for part in inside if isinstance(part, Propose) and isinstance(part.q, Move)]
    if len({id(part) for part in sweeps} - {id(part) for part in subprograms(q.q)}) > 1:
        yield "a scan of two sweeps"
    tables = [table_of(part) for part in inside if isinstance(part, Primitive)]
    if len({*q.xs.tolist()}) > 1 and any(table.shift is not None for table in tables):
        yield "a scan with other numbers in each step"


def _of_primitive(q: Primitive) -> Iterator[str]:
    table = table_of(q)
    if q.detached:
        yield "detach of a callable"
    if q.power != 1:
        yield "a tempered program"
    if table.returns in VALUES:
        yield VALUES[table.returns]
    for statement in statements_of(table.statements):
        match statement:
            case Observe(_, rows, value):
                yield "an observed variable"
                if any(row[value] == 0 for row in rows):
                    yield "a weight of zero"
            case Factor(_, log_values):
                yield "a factor"
                if -float("inf") in log_values:
                    yield "a weight of zero"


def _of_compose(q2: Program, q1: Program, *, several: bool) -> Iterator[str]:
    if _weighted(q2) and _weighted(q1):
        yield "compose of two weighted programs"
    if isinstance(q2, Propose) and isinstance(q1, Propose):
        yield "compose of two proposes"
    if several and _weighted(q2) and _resamples(q1):
        yield "compose of a weighted program after a resample"
    if several and _resamples(q2) and _weighted(q1):
        yield "compose of a resample after a weighted program"
    if several and any(isinstance(q, Propose) and _resamples(q.q) for q in subprograms(q2)):
        yield "a resample inside of a propose, after another program"


def _of_propose(p: Program, q: Program) -> Iterator[str]:
    yield f"{FORMS[type(q)]} as a proposal"
    theirs, ours = domain(q), domain(p)
    if ours.sizes.keys() - theirs.sizes.keys():
        yield "a missing variable"
    if theirs.sizes.keys() - ours.sizes.keys():
        yield "a superfluous variable"
    if theirs.sometimes & theirs.sizes.keys() & ours.sizes.keys():
        yield "a variable that only some proposals have"
    if ours.sometimes & ours.sizes.keys() & theirs.sizes.keys():
        yield "a variable that only some targets have"
    if theirs.sizes.keys() & ours.observed:
        yield "a proposed variable that the target observes"
    if any(theirs.sizes.get(a, 0) > n for a, n in ours.sizes.items()):
        yield "a proposal with more values than its target"
    if isinstance(q, Move) and is_kernel(q.q2):
        kernel, before = domain(q.q2), domain(q.q1)
        if kernel.observed - before.all:
            yield "a kernel with weights of its own"
        if kernel.observed & before.observed & ours.observed:
            yield "a kernel that observes what its target observes"
        if kernel.observed & before.sizes.keys() & ours.sizes.keys():
            yield "a kernel that observes what its target samples"
        if any(
            isinstance(part, Propose) and sy.marginal(part.p) == sy.marginal(p) and isinstance(part.q, Move)
            for part in subprograms(q)
        ):
            yield "two sweeps for one target"
    match p, q:
        case Extend(_, Prev(f)), Move(g, Resample()) if f == g:
            yield "propose(extend(p, prev(f)), move(f, resample(q)))"


def _weighted(q: Program) -> bool:
    """Tell whether weights of q may differ between particles."""
    return any(isinstance(part, Propose) for part in subprograms(q)) or bool(domain(density_of(q)).observed)


def _resamples(q: Program) -> bool:
    return any(isinstance(part, Resample) for part in subprograms(q))


@contextmanager
def counting_reuse() -> Iterator[Callable[[], int]]:
    """Count how often a propose takes densities over from its proposal."""
    reuse, count = EquationCache.reuse, 0

    def counted(self: EquationCache, q: Program, c0: Any, e1: Any) -> Any:
        nonlocal count
        found = reuse(self, q, c0, e1)
        count += found is not None
        return found

    EquationCache.reuse = counted  # type: ignore[method-assign]
    try:
        yield lambda: count
    finally:
        EquationCache.reuse = reuse  # type: ignore[method-assign]
