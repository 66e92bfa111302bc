"""Every outcome of a program with finite discrete variables, with its probability."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np

from steelyard.arguments import check_count
from steelyard.errors import ArgumentError
from steelyard.language.programs import Primitive, Program, Programmable, Propose, Scan, program
from steelyard.language.state import Run, run
from steelyard.maps import Domain, Map
from steelyard.particles.resampling import RESAMPLERS, Noise, whole_copies
from steelyard.particles.weights import normalize
from steelyard.semantics import judgement, loops
from steelyard.semantics.engines import together
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values
from steelyard.types import Count, Distribution


class Outcome(NamedTuple):
    """One way in which a random computation can end."""

    probability: float
    result: Any


def enumerate(q: Programmable, *args: Any, particles: Count) -> Iterator[tuple[float, Evaluation]]:  # noqa: A001
    """Yield every outcome of a program and its probability, without Monte Carlo noise.

    The rules are those of `evaluate`, in the universal engine; every random choice, the ancestors of a resampling
    included, is made in every way. Outcomes that are alike in everything are yielded as one. In double precision.

    Args:
        q: a program whose variables are finite and discrete (their distributions have `enumerate_support`).
        *args: what q is called with.
        particles: how many particles; the number of outcomes grows exponentially with it.

    Yields:
        Pairs of a probability and the `Evaluation` of all particles.

    Example:
        >>> import numpyro.distributions as dist, steelyard as sy
        >>> def coin(s): return s.sample("heads", dist.Bernoulli(0.25))
        >>> outcomes = sy.testing.enumerate(coin, particles=2)
        >>> [(round(p, 3), [int(x) for x in out.trace["heads"]]) for p, out in outcomes]
        [(0.562, [0, 0]), (0.188, [0, 1]), (0.188, [1, 0]), (0.062, [1, 1])]
    """
    with jax.enable_x64(True):
        engine = Enumerating(check_count(particles, "enumerate"))
        outcomes = engine.outcomes(lambda: engine.run(program(q), Values.shared(args)))
    yield from outcomes


class Enumerating:
    """The universal engine with every random choice made in every way.

    A random computation calls `choose`. To go through all its outcomes it is run again and again, each time along
    another branch. Evaluating a part of a program is one choice among the outcomes of the part, so that a rule is run
    once for each combination of the outcomes of its premises.
    """

    sees_all_addresses = False

    def __init__(self, particles: int) -> None:
        self._particles = particles
        self._branches: list[_Branch] = []
        self.one = np.zeros(particles)
        self.objective = None

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        if not self._branches:
            return self._conclude(q, c0, tau0)
        return self.choose(lambda: merge(self.outcomes(lambda: self._conclude(q, c0, tau0))))

    def _conclude(self, q: Program, c0: Values, tau0: Map[Any] | None) -> Evaluation:
        """Apply the rule for q, whose premises are choices."""
        rule, e = judgement.apply(self, q, c0, tau0), None
        while True:
            try:
                premise = rule.send(e)  # pyright: ignore[reportArgumentType]
            except StopIteration as conclusion:
                return conclusion.value
            e = self.run(*premise)

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        return self.run(q, c0, tau0)

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any]) -> Run:
        def one(index: int) -> Any:
            args, given = c0.of_particle(index), tau0.of_particle(index)
            return run(f, args, self._draw, given, concrete=True)

        chosen = [self.choose(lambda l=l: self.outcomes(lambda: one(l))) for l in range(self._particles)]
        return together(chosen)

    def reusing(self, q: Propose, c0: Values, e1: Evaluation) -> AbstractContextManager[Domain]:
        return nullcontext(Domain())

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        return loops.unrolled(self, q, e0, c0)

    def noise(self, method: str, log_weights: Any) -> Noise:
        return self.choose(lambda: list(every_noise(method, normalize(log_weights))))

    def _draw(self, site: int, address: str, distribution: Distribution) -> Any:
        return self.choose(lambda: every_value(address, distribution))

    def choose(self, alternatives: Callable[[], list[Outcome]]) -> Any:
        """Make a random choice: the one that the present branch prescribes."""
        return self._branches[-1].choose(alternatives)

    def outcomes(self, computation: Callable[[], Any]) -> list[Outcome]:
        """Return every outcome of a computation that makes random choices."""
        found, branch = [], _Branch()
        while branch is not None:
            self._branches.append(branch)
            try:
                result = computation()
            finally:
                self._branches.pop()
            found.append(Outcome(branch.probability, result))
            branch = branch.next()
        return found


class _Branch:
    """The choices made on the way to one outcome: for each, its alternatives and the index of the one taken."""

    def __init__(self, choices: list[tuple[list[Outcome], int]] | None = None) -> None:
        self._choices = choices or []
        self._made = 0

    def choose(self, alternatives: Callable[[], list[Outcome]]) -> Any:
        if self._made == len(self._choices):
            self._choices.append(([o for o in alternatives() if o.probability > 0], 0))
        outcomes, index = self._choices[self._made]
        self._made += 1
        return outcomes[index].result

    @property
    def probability(self) -> float:
        return math.prod(outcomes[index].probability for outcomes, index in self._choices)

    def next(self) -> "_Branch | None":
        """Return the branch that differs in the last choice which has an alternative left."""
        choices = list(self._choices)
        while choices:
            outcomes, index = choices.pop()
            if index + 1 < len(outcomes):
                return _Branch([*choices, (outcomes, index + 1)])
        return None


def merge(outcomes: list[Outcome]) -> list[Outcome]:
    """Join the outcomes that are alike in every value and every weight."""
    merged: dict[Any, Outcome] = {}
    for probability, result in outcomes:
        mark = _mark(result)
        before = merged[mark].probability if mark in merged else 0.0
        merged[mark] = Outcome(before + probability, result)
    return list(merged.values())


def _mark(e: Evaluation) -> Any:
    return tuple(
        map(_freeze, (e.values.leaves, dict(e.trace), e.trace.masks, dict(e.log_density), e.log_density.masks))
    ) + (_freeze(e.log_weight), _freeze(e.ancestors), _freeze(e.marginal and e.marginal.trace))


def _freeze(x: Any) -> Any:
    match x:
        case dict() | Map():
            return tuple((k, _freeze(v)) for k, v in sorted(x.items()))
        case list() | tuple():
            return tuple(map(_freeze, x))
        case np.ndarray() if x.dtype == object:
            return tuple(map(_freeze, x))
        case np.ndarray() | np.generic() | jax.Array():
            array = np.asarray(x)
            return (array.shape, array.dtype.str, array.tobytes())
        case _:
            try:
                hash(x)
            except TypeError:
                return id(x)
            return x


def every_value(address: str, distribution: Distribution) -> list[Outcome]:
    """Return every value that a distribution can draw."""
    if not getattr(distribution, "has_enumerate_support", hasattr(distribution, "enumerate_support")):
        raise ArgumentError(
            f"enumerate: {address!r} has the distribution {distribution!r}, which is not finite and discrete. "
            f"Use sy.testing.check_evidence for programs with continuous variables."
        )
    shape = tuple(getattr(distribution, "batch_shape", ()))
    if not shape:
        values = list(distribution.enumerate_support())  # pyright: ignore
    else:
        support = list(distribution.enumerate_support(expand=False).reshape(-1))  # pyright: ignore
        combinations = itertools.product(support, repeat=math.prod(shape))
        values = [np.asarray(c).reshape(shape) for c in combinations]
    return [Outcome(float(np.exp(np.sum(distribution.log_prob(v)))), v) for v in values]


def every_noise(method: str, weights: np.ndarray) -> Iterator[Outcome]:
    """Yield a piece of noise for each result that a resampler can have, with the probability of the piece."""
    size = len(weights)
    resampler = RESAMPLERS[method]
    if not np.isfinite(weights).all():
        # Every particle has weight zero: the ancestors do not matter.
        yield Outcome(1.0, Noise(np.full(resampler.uniforms(size), 0.5), 0))
        return
    rotations = range(size) if resampler.ordered else (0,)
    for pieces in itertools.product(*_pieces(method, weights)):
        uniforms = np.array([(low + high) / 2 for low, high in pieces])
        probability = math.prod(high - low for low, high in pieces)
        for rotation in rotations:
            yield Outcome(probability / len(rotations), Noise(uniforms, rotation))


def _pieces(method: str, weights: np.ndarray) -> list[list[tuple[float, float]]]:
    """Return for each uniform the intervals in which the ancestors do not change."""
    size = len(weights)
    cdf = np.cumsum(weights) / np.sum(weights)
    match method:
        case "systematic":
            return [_intervals((size * cdf) % 1.0)]
        case "stratified":
            return [_intervals(np.clip(size * cdf - l, 0.0, 1.0)) for l in range(size)]
        case "multinomial":
            return [_intervals(cdf)] * size
        case "residual":
            copies = whole_copies(weights, size)
            rest = np.maximum(size * weights - copies, 0.0)
            drawn = size - int(copies.sum())
            cuts = _intervals(np.cumsum(rest) / np.sum(rest)) if drawn else []
            # Uniforms of slots that hold a copy are not used.
            return [[(0.0, 1.0)]] * (size - drawn) + [cuts] * drawn
        case _:
            raise ArgumentError(f"enumerate: the resampler {method!r} cannot be enumerated.")


def _intervals(cuts: np.ndarray) -> list[tuple[float, float]]:
    edges = np.unique(np.concatenate([[0.0], cuts, [1.0]]))
    return [(float(a), float(b)) for a, b in itertools.pairwise(edges) if b > a]
