"""Every outcome of a program with finite discrete variables, with its probability."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import jax
import numpy as np

from steelyard.arguments import check_count
from steelyard.engines.gathering import moved_together, together
from steelyard.engines.one_by_one import OneByOne
from steelyard.engines.single import at_particle
from steelyard.engines.walk import Transition
from steelyard.errors import ArgumentError
from steelyard.language.programs import Primitive, Program, Programmable, program
from steelyard.language.state import Run, run
from steelyard.maps import Map
from steelyard.particles.resampling import Noise
from steelyard.particles.weights import normalize
from steelyard.semantics import judgement
from steelyard.semantics.engine import Known, Moved, Premise
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values
from steelyard.semantics.versions import KernelDomains
from steelyard.testing import vectorized
from steelyard.testing.outcomes import (
    Branch,
    Dice,
    Outcome,
    branches,
    contents,
    either_way,
    every_noise,
    every_value,
    frozen,
)
from steelyard.testing.precision import doubled, in_double_precision
from steelyard.testing.replay import Replaying, Tape
from steelyard.types import Count, Distribution, EngineName, Function


def enumerate(  # noqa: A001
    q: Programmable, *args: Any, particles: Count, engine: EngineName = "universal"
) -> Iterator[tuple[float, Evaluation]]:
    """Yield every outcome of a program and its probability, without Monte Carlo noise.

    The rules are those of `evaluate`; every random choice, the ancestors of a resampling included, is made in every
    way. Outcomes that are alike in everything are yielded as one. In double precision.

    Args:
        q: a program whose variables are finite and discrete (their distributions have `enumerate_support`).
        *args: what q is called with.
        particles: how many particles; the number of outcomes grows exponentially with it.
        engine: `universal` joins outcomes that are alike after each part of the program, so that there are fewer;
            `vectorized` shows what `evaluate` computes for each of them, with loops and with reuse of densities.

    Yields:
        Pairs of a probability and the `Evaluation` of all particles.

    Example:
        >>> import numpyro.distributions as dist, steelyard as sy
        >>> def coin(s): return s.sample("heads", dist.Bernoulli(0.25))
        >>> outcomes = sy.testing.enumerate(coin, particles=2)
        >>> [(round(p, 3), [int(x) for x in out.trace["heads"]]) for p, out in outcomes]
        [(0.562, [0, 0]), (0.188, [0, 1]), (0.188, [1, 0]), (0.062, [1, 1])]
    """
    if engine not in get_args(EngineName):
        raise ArgumentError(f'enumerate: engine is "vectorized" or "universal", got {engine!r}.')
    particles = check_count(particles, "enumerate")
    with jax.enable_x64(True):
        q, args = in_double_precision(program(q)), doubled(args)
        if engine == "vectorized":
            found = merge(vectorized.outcomes(q, args, particles) or [])
        else:
            every = Enumerating(particles)
            found = every.outcomes(lambda: every.run(q, Values.shared(args)))
    yield from found


class Enumerating(OneByOne):
    """The universal engine with every random choice made in every way.

    A random computation calls `choose`. To go through all its outcomes it is run again and again, each time along
    another branch. Evaluating a part of a program is one choice among the outcomes of the part, so that a rule is run
    once for each combination of the outcomes of its premises. The outcomes of the same part at the same values are
    found once: a program is a function of its arguments and its trace.
    """

    def __init__(self, particles: int) -> None:
        self._particles = particles
        self._branches: list[Branch] = []
        self._found: dict[Any, tuple[list[Outcome], Any]] = {}
        self._computed: dict[Any, Any] = {}
        self.log_one = np.zeros(particles)
        self.objective = None

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        if not self._branches:
            return self._conclude(q, c0, tau0)

        def every() -> list[Outcome]:
            return merge(self.outcomes(lambda: self._conclude(q, c0, tau0)))

        return self.choose(lambda: self._once((q, c0, tau0), every))

    def _once(self, question: tuple[Any, ...], answer: Callable[[], list[Outcome]]) -> list[Outcome]:
        """Return the outcomes of a part of a program, which are looked up if it was asked for before."""
        mark = frozen(question)
        if mark not in self._found:
            # With the question, because it may be looked up by where its objects are.
            self._found[mark] = answer(), question
        return self._found[mark][0]

    def _conclude(self, q: Program, c0: Values, tau0: Map[Any] | None) -> Evaluation:
        """Apply the rule for q, whose premises are choices."""
        rule, e = judgement.apply(self, Premise(q, c0, tau0)), None
        while True:
            try:
                premise = rule.send(e)  # pyright: ignore[reportArgumentType]
            except StopIteration as conclusion:
                return conclusion.value
            e = self.run(premise.q, premise.c0, premise.tau0)

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        return self.run(q, c0, tau0)

    @property
    def kernels(self) -> KernelDomains:
        """Nothing is remembered: the same branch must do the same whenever it is run."""
        return KernelDomains()

    def mark(self) -> int:
        return 0

    def rewind(self, mark: int) -> None:
        """What is tried again is chosen again, in every way."""

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any], known: Known | None = None) -> Run:
        def every(args: Any, given: Map[Any]) -> list[Outcome]:
            tape = Tape()

            def once() -> Run:
                state = partial(Replaying, tape, self._branches[-1])
                return run(f, args, self._draw, given, concrete=True, density=self._density, state=state)

            return self.outcomes(once)

        def one(index: int) -> list[Outcome]:
            question = c0.of_particle(index), tau0.of_particle(index)
            return self._once((f, *question), lambda: every(*question))

        return together([self.choose(partial(one, l)) for l in range(self._particles)])

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        """Move every particle on its own, by a random function that may evaluate p for it at any trace."""

        def one(index: int) -> Moved:
            return transition(at_particle(p, c0, index), lambda number: Dice(self.choose), tau.of_particle(index))

        return moved_together([self.choose(lambda l=l: self.outcomes(lambda: one(l))) for l in range(self._particles)])

    def accepts(self, log_alpha: Any) -> Any:
        return np.array([self.choose(lambda x=x: either_way(x)) for x in log_alpha])

    def remark(self, kind: str, place: str, message: str) -> None:
        """What a proposal misses shows in the outcomes."""

    def noise(self, method: str, log_weights: Any) -> Noise:
        return self.choose(lambda: list(every_noise(method, normalize(log_weights))))

    def noises(self, method: str, rows: Any) -> Noise:
        return Noise.stacked([self.noise(method, row) for row in rows])

    def _draw(self, site: int, address: str, distribution: Distribution) -> Any:
        return self.choose(lambda: self._known_values(address, distribution))

    def _known_values(self, address: str, distribution: Distribution) -> list[Outcome]:
        return self._looked_up(every_value, address, distribution)

    def _density(self, log_prob: Function, distribution: Distribution, value: Any) -> Any:
        return self._looked_up(log_prob, distribution, value)

    def _looked_up(self, f: Function, *args: Any) -> Any:
        """Return f(*args), which is looked up if it is known from before what the arguments contain."""
        try:
            mark = f, contents(args)
        except TypeError:
            return f(*args)
        if mark not in self._computed:
            self._computed[mark] = f(*args)
        return self._computed[mark]

    def choose(self, alternatives: Callable[[], list[Outcome]]) -> Any:
        """Make a random choice: the one that the present branch prescribes."""
        return self._branches[-1].choose(alternatives)

    def outcomes(self, computation: Callable[[], Any]) -> list[Outcome]:
        """Return every outcome of a computation that makes random choices."""
        found = []
        for branch in branches():
            self._branches.append(branch)
            try:
                result = computation()
            finally:
                self._branches.pop()
            found.append(Outcome(branch.probability, result))
        return found


def merge(outcomes: list[Outcome]) -> list[Outcome]:
    """Join the outcomes that are alike in every value and every weight."""
    merged: dict[Any, Outcome] = {}
    for probability, result in outcomes:
        mark = _mark(result)
        before = merged[mark].probability if mark in merged else 0.0
        merged[mark] = Outcome(before + probability, result)
    return list(merged.values())


def _mark(e: Evaluation) -> Any:
    return frozen((e.values.leaves, e.trace, e.log_density, e.log_weight, e.ancestors, e.marginal.trace))
