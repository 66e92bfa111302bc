"""A Hypothesis strategy for inference programs: the grammar's q, over small finite models.

Every program that is drawn is valid: domains that must be disjoint are, and proposals cover what they propose for.
Anything else goes: variables may be missing or superfluous, absent in some particles, observed here and sampled there.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, get_args

from hypothesis import strategies as st

import steelyard as sy
from steelyard.language.addresses import variable
from steelyard.language.programs import Kernel, Program
from steelyard.types import Method
from tests.laws.primitives import Need, chance, extended, kernel, primitive, renamed, target
from tests.laws.structure import cost, domain, older, subprograms

METHODS = get_args(Method)
# No fraction of 1, 2 or 3 particles that weights of zero make the effective sample size equal to.
THRESHOLDS = (None, 0.45, None, 0.83, 1.0)
RESAMPLINGS = tuple(itertools.product(METHODS, THRESHOLDS))


@dataclass(frozen=True)
class Example:
    """A program, what it is called with, and how many particles it has."""

    q: Program
    argument: int
    particles: int


@st.composite
def examples(draw: Any, particles: int, *, runs: int = 4000) -> Example:
    """Draw a program that can be enumerated in so many runs of a rule: the more particles, the smaller it is.

    Hypothesis draws the seed and a generator of our own the program. Where Hypothesis draws each choice itself, more
    than half of the programs are small variations of others, and each takes as long to draw as to enumerate. What is
    lost is shrinking: `smallest_part` does that.
    """
    rng = draw(st.randoms(use_true_random=True))
    while True:
        depth = rng.choice((0, 1, 2, 3, 4, 4, 5, 5, 6) if particles == 1 else (1, 2, 3, 4, 4, 5))
        q = inference(rng, Need(thrifty=particles > 1), depth)
        if cost(q, particles).runs + cost(sy.target(q), 1).runs <= runs:
            return Example(q, rng.randint(0, 2), particles)


@st.composite
def apart(draw: Any, count: int) -> tuple[Program, ...]:
    """Draw programs that share no variables, so that they can be composed in the order in which they are drawn."""
    rng, need = draw(st.randoms(use_true_random=True)), Need(thrifty=True)
    programs: list[Program] = []
    for _ in range(count):
        programs.append(inference(rng, need, rng.randint(0, 2)))
        need = _apart_from(programs[-1], need)
    return tuple(programs)


def smallest_part(example: Example, fails: Callable[[Example], bool]) -> Example:
    """Return the smallest part of a failing program that fails on its own: parts of programs are programs."""
    found = [replace(example, q=q, argument=c) for q in subprograms(example.q) for c in (example.argument, 0, 1, 2)]
    return min(filter(fails, found), key=lambda part: len(list(subprograms(part.q))), default=example)


def inference(rng: Random, need: Need, depth: int) -> Program:
    """Return q, of about this depth."""
    if depth <= 0:
        return target(rng, need)
    forms = [_propose] * 4 + [_resample] * 4 + [_compose] * 3 + [_move] * 2 + [_rename]
    if depth >= 2:
        forms += [_step] * 4
    if depth >= 3:
        forms += [_sweep] * 3 + [_again]
    return rng.choice(forms)(rng, need, depth)


def _resample(rng: Random, need: Need, depth: int) -> Program:
    return _resampled(rng, inference(rng, need, depth - 1))


def _resampled(rng: Random, q: Program) -> Program:
    method, threshold = rng.choice(RESAMPLINGS)
    return sy.resample(q, method=method, threshold=threshold)


def _rename(rng: Random, need: Need, depth: int) -> Program:
    return renamed(rng, inference(rng, need, depth - 1), need)


def _compose(rng: Random, need: Need, depth: int) -> Program:
    depths = rng.sample((depth - 1, rng.randint(0, min(depth - 1, 2))), 2)
    q1 = inference(rng, need, depths[0])
    return sy.compose(inference(rng, _apart_from(q1, need), depths[1]), q1)


def _step(rng: Random, need: Need, depth: int) -> Program:
    """Return a step of sequential Monte Carlo, which resamples before, after or while it extends the particles.

    What q1 left, and the arguments of a propose after it, must follow the ancestors.
    """
    when = rng.choice(("before", "while", "after"))
    q1 = inference(rng, need, depth - 2 if when == "before" else rng.randint(0, 1))
    apart = _apart_from(q1, need)
    match when:
        case "before":
            return sy.compose(inference(rng, apart, rng.randint(0, 1)), _resampled(rng, q1))
        case "after":
            return sy.compose(_resampled(rng, inference(rng, apart, depth - 2)), q1)
        case _:
            p = target(rng, apart, hidden=True)
            return sy.compose(sy.propose(p, _resampled(rng, _proposal_for(rng, p, need, depth - 3))), q1)


def _apart_from(q: Program, need: Need) -> Need:
    return replace(need, avoid=need.avoid | {variable(a) for a in domain(q).all})


def _proposal_for(rng: Random, p: Program, need: Need, depth: int) -> Program:
    """Return a program that covers p. Its variables are not seen outside, so that it may have any."""
    wider = need.wider + 1 if chance(rng, 12) else need.wider
    need = Need(positive=True, wider=wider, wanted=tuple(domain(p).sizes), thrifty=need.thrifty)
    return inference(rng, need, depth)


def _propose(rng: Random, need: Need, depth: int) -> Program:
    p = target(rng, need, hidden=True)
    return sy.propose(p, _proposal_for(rng, p, need, depth - 1))


def _again(rng: Random, need: Need, depth: int) -> Program:
    """Return propose(p, resample(propose(p, q))), where p may be zero: so is then what proposes for it."""
    p = kernel(rng, need)
    q = sy.propose(p, _proposal_for(rng, p, need, depth - 3))
    return sy.propose(p, _resampled(rng, q))


def _move(rng: Random, need: Need, depth: int) -> Program:
    q = inference(rng, need, depth - 1)
    return sy.move(_mover(rng, q, need), q)


def _mover(rng: Random, q: Program, need: Need, *, observes: bool = True) -> Kernel:
    """Return a kernel that samples variables of q again.

    It samples them in every particle. Else the address of an old value, the newest or the previous version, would
    depend on what is sampled after it, and that is no address: a propose around such a move is not proper.
    """
    known, names = domain(q), frozenset(map(variable, domain(q).all))
    need = replace(need, wanted=tuple(known.sizes))
    f = kernel(rng, need, observes=observes, unobservable=names, masks=chance(rng, 50))
    has = domain(f)
    if has.sometimes & names or has.all & older(known, has).all:
        return primitive(rng, need, observes=False, masks=False)
    return f


def _sweep(rng: Random, need: Need, depth: int) -> Program:
    """Return propose(extend(p, prev(f)), move(f, resample(q))), q for p or for something like it, with one f or two."""
    p = kernel(rng, replace(need, positive=True))
    inner = p if chance(rng, 60) else kernel(rng, replace(need, positive=True, avoid=frozenset()))
    q: Program = sy.propose(inner, _proposal_for(rng, inner, need, depth - 4))
    if chance(rng, 85):
        q = _resampled(rng, q)
    whole = p
    for _ in range(1 + chance(rng, 25)):
        observes = chance(rng, 20)
        f = _mover(rng, q, Need(positive=True, wider=need.wider, thrifty=need.thrifty), observes=observes)
        reverse = f if chance(rng, 80) and not domain(f).observed else None
        whole = extended(rng, whole, replace(need, positive=True, avoid=frozenset()), reverse)
        q = sy.move(f, q)
    return sy.propose(whole, q)
