"""Random examples of inference programs over small finite models, and the smallest part of one that fails.

An example is made of a generator of random numbers alone, so that its number says which one it is, in every process.
Hypothesis would not do: its examples depend on which modules are loaded, and where it draws each choice itself more
than half of the programs are small variations of others. What it could do is shrink, and that does `smallest_part`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from steelyard.language.programs import Program
from tests.laws.inference import apart_from, filtering, inference, repetition
from tests.laws.primitives import Need, chance
from tests.laws.structure import cost, density_of, subprograms


@dataclass(frozen=True)
class Example:
    """A program, what it is called with, and how many particles it has."""

    q: Program
    argument: int
    particles: int


def example_from(rng: Random, particles: int, *, runs: int = 4000, repeats: bool = False) -> Example:
    """Return a program that can be enumerated in so many runs of a rule: the more particles, the smaller it is.

    With `repeats` it repeats itself, in sweeps or in a scan.
    """
    while True:
        depth = rng.choice((0, 1, 2, 3, 4, 4, 5, 5, 6) if particles == 1 else (1, 2, 3, 4, 4, 5))
        need = Need(thrifty=particles > 1, particles=particles)
        if repeats:
            q = repetition(rng, need)
        else:
            q = filtering(rng, need) if chance(rng, 6) else inference(rng, need, depth)
        if cost(q, particles).runs + cost(density_of(q), 1).runs <= runs:
            return Example(q, rng.randint(0, 2), particles)


def apart_from_each_other(rng: Random, count: int) -> tuple[Program, ...]:
    """Return programs that share no variables, so that they can be composed in the order in which they are drawn."""
    need = Need(thrifty=True)
    programs: list[Program] = []
    for _ in range(count):
        programs.append(inference(rng, need, rng.randint(0, 2)))
        need = apart_from(programs[-1], need)
    return tuple(programs)


def smallest_part(example: Example, fails: Callable[[Example], bool]) -> Example:
    """Return the smallest part of a failing program that fails on its own: parts of programs are programs."""
    found = [replace(example, q=q, argument=c) for q in subprograms(example.q) for c in (example.argument, 0, 1, 2)]
    return min(filter(fails, found), key=lambda part: len(list(subprograms(part.q))), default=example)
