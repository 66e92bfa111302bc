"""Random primitive and target programs: the grammar's f and p."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import steelyard as sy
from steelyard.language.addresses import variable
from steelyard.language.programs import Kernel, Primitive, Program, Target
from tests.laws.finite import Factor, Observe, Row, Rows, Sample, Statement, Table, When
from tests.laws.structure import domain

# Lopsided on purpose: a rule that mixes up two values, two variables or two particles must not get away with it.
SKEWED: dict[int, tuple[Row, ...]] = {
    1: ((1.0,),),
    2: ((0.13, 0.87), (0.71, 0.29), (0.38, 0.62), (0.94, 0.06)),
    3: ((0.11, 0.27, 0.62), (0.55, 0.36, 0.09), (0.23, 0.07, 0.7)),
    4: ((0.08, 0.21, 0.52, 0.19), (0.4, 0.31, 0.05, 0.24)),
}
ZERO: dict[int, Row] = {1: (1.0,), 2: (0.0, 1.0), 3: (0.3, 0.0, 0.7), 4: (0.1, 0.2, 0.7, 0.0)}
LOG_FACTORS = (0.7, -1.3, 0.2, -0.4)

# How many values the variable at an address has. Any variable may also be observed, or be auxiliary.
SIZES = {"a": 2, "b": 2, "x": 2, "aux 1": 2, "z": 2, "y": 2, "v": 2, "ζ": 3, "log w": 3, "one": 1}


@dataclass(frozen=True)
class Need:
    """What the place of a program in a larger one asks of it.

    Attributes:
        positive: it proposes, and must cover whatever it may propose for: its density is nowhere zero.
        wider: how many more values than `SIZES` says its variables have, as those of proposals may.
        avoid: variables that it may not have, because of what it is composed with.
        wanted: variables that it had better have, for the program around it has them.
        thrifty: it has few outcomes: their number is exponential in the variables, and in the particles.
        particles: how many particles there will be, where that matters: each may be an island.
    """

    positive: bool = False
    wider: int = 0
    avoid: frozenset[str] = frozenset()
    wanted: tuple[str, ...] = ()
    thrifty: bool = False
    particles: int = 1


def chance(rng: Random, percent: int) -> bool:
    """Return True in this many cases of a hundred."""
    return rng.random() < percent / 100


def _rows(rng: Random, size: int, need: Need) -> Rows:
    rows = rng.sample(SKEWED[size], min(rng.randint(1, 3), len(SKEWED[size])))
    if not need.positive and chance(rng, 15):
        rows.append(ZERO[size])
    return tuple(rows)


def _sample(rng: Random, address: str, need: Need) -> Sample:
    return Sample(address, _rows(rng, min(SIZES[address] + need.wider, 4), need))


def weight(rng: Random, address: str, need: Need) -> Observe | Factor:
    """Return what observes or weighs an address."""
    if chance(rng, 50):
        size = rng.choice((2, 3))
        return Observe(address, _rows(rng, size, need), rng.randrange(size))
    values = rng.sample(LOG_FACTORS, rng.randint(1, 3))
    if not need.positive and chance(rng, 70):
        values.append(-float("inf"))
    return Factor(address, tuple(values))


def primitive(
    rng: Random,
    need: Need,
    *,
    observes: bool = True,
    observable: frozenset[str] = frozenset(),
    masks: bool = True,
    two: bool = False,
) -> Primitive:
    """Return a callable. What it observes is mostly among the `observable`, if there are any; with `two` variables."""
    free = [a for a in SIZES if a not in need.avoid and not (need.thrifty and SIZES[a] > 2)]
    wanted = sorted({variable(a) for a in need.wanted} & set(free))
    masked = masks and chance(rng, 30)
    # A variable is absent in some particles and present in others where another one, sampled before, decides.
    several = two or masked or not need.thrifty or chance(rng, 40 if len(wanted) > 1 else 10)
    names = rng.sample(wanted, min(1 + several, len(wanted))) if chance(rng, 85) else []
    if free and len(names) < 1 + several and chance(rng, 80 if masked or not names else 20):
        names.append(rng.choice([a for a in free if a not in names] or free))
    if two and len(names) == 1 and len(free) > 1:
        names.append(rng.choice([a for a in free if a not in names]))
    statements: list[Statement] = [_sample(rng, a, need) for a in dict.fromkeys(names)]
    rest = [a for a in free if a not in names]
    if observes and rest and chance(rng, 60):
        # Mostly last: before the variables it would give the same weight to all particles.
        place = rng.randint(0, len(statements)) if chance(rng, 25) else len(statements)
        preferred = [a for a in rest if a in observable] if chance(rng, 70) else []
        statements.insert(place, weight(rng, rng.choice(preferred or rest), need))
    if statements and masked:
        start = rng.randint(min(1, len(statements) - 1), len(statements) - 1)
        statements[start:] = [When(rng.randint(0, 1), tuple(statements[start:]))]
    returns = rng.choice((*["state"] * 5, "pair", "argument", "nothing"))
    return Primitive(Table(tuple(statements), returns))


def kernel(rng: Random, need: Need, **options: Any) -> Kernel:
    """Return f ::= callable | rename(f, {...}) | prev(f) | detach(f)."""
    f: Kernel = primitive(rng, need, **options)
    for _ in range(2):
        if chance(rng, 12):
            f = renamed(rng, f, need)  # type: ignore[assignment]
        elif chance(rng, 8):
            f = sy.prev(f)
    if chance(rng, 8):
        f = sy.temper(f, rng.choice((0.0, 0.4, 2.0)))  # type: ignore[assignment]
    return sy.detach(f) if chance(rng, 5) else f  # type: ignore[return-value]


def target(rng: Random, need: Need, *, hidden: bool = False) -> Target:
    """Return p ::= f | extend(p, f). The variables of extensions are `hidden` where a propose drops them."""
    p: Target = kernel(rng, need)
    around = replace(need, avoid=frozenset()) if hidden else need
    while chance(rng, 35):
        p = extended(rng, p, around)
    return p


def extended(rng: Random, p: Target, need: Need, f: Kernel | None = None) -> Target:
    """Return extend(p, f), f on other variables than p's or on previous versions of them."""
    taken = domain(p).all
    if f is None and chance(rng, 40):
        avoid = need.avoid | {variable(a) for a in taken}
        return sy.extend(p, kernel(rng, replace(need, avoid=avoid), observes=False))
    f = f or kernel(rng, replace(need, wanted=tuple(domain(p).sizes)), observes=False)
    while domain(f).all & taken:
        f = sy.prev(f)
    return sy.extend(p, f)


def renamed(rng: Random, q: Program, need: Need) -> Program:
    """Return rename(q, {...}): one or two addresses get new names, or change theirs with each other."""
    known = sorted(domain(q).all)
    new: dict[str, str] = {}
    for old in rng.sample(known, min(rng.randint(1, 2), len(known))):
        # A variable keeps the number of its values, else what it proposes for might not be covered.
        alike = [a for a in SIZES if SIZES[a] == SIZES[variable(old)] and a not in need.avoid]
        free = [a for name in alike for a in (name, sy.previous(name)) if a not in known and a not in new.values()]
        swapped = [a for a in known if a != old and variable(a) in alike and not {a, old} & {*new, *new.values()}]
        if swapped and chance(rng, 40):
            other = rng.choice(swapped)
            new |= {old: other, other: old}
        elif free and old not in new:
            new[old] = rng.choice(free)
    return sy.rename(q, new) if new else q
