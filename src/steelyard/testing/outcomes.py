"""What a random choice can give: every value of a distribution, every result of a resampler, and ways through them."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from steelyard.errors import ArgumentError
from steelyard.maps import Map
from steelyard.particles.resampling import RESAMPLERS, Noise, whole_copies
from steelyard.semantics.values import Values
from steelyard.types import Distribution

# Probabilities that were computed in single precision, of arrays with some hundred entries.
ROUNDING = 1e-4


class Outcome(NamedTuple):
    """One way in which a random computation can end."""

    probability: float
    result: Any


class Branch:
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
    def made(self) -> int:
        """How many choices were made so far."""
        return self._made

    @property
    def prescribed(self) -> int:
        """How many choices are made as on the branch before, and one more, which differs."""
        return len(self._choices)

    def skip(self, made: int) -> None:
        """Take the first choices as made."""
        self._made = made

    @property
    def probability(self) -> float:
        return math.prod(outcomes[index].probability for outcomes, index in self._choices)

    def next(self) -> "Branch | None":
        """Return the branch that differs in the last choice which has an alternative left."""
        choices = list(self._choices)
        while choices:
            outcomes, index = choices.pop()
            if index + 1 < len(outcomes):
                return Branch([*choices, (outcomes, index + 1)])
        return None


def branches() -> Iterator[Branch]:
    """Yield every branch of a computation that is run along each of them before the next is asked for."""
    branch: Branch | None = Branch()
    while branch is not None:
        yield branch
        branch = branch.next()


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
        values = [jnp.asarray(c).reshape(shape) for c in combinations]
    outcomes = [Outcome(float(np.exp(np.sum(distribution.log_prob(v)))), v) for v in values]
    # Not `abs(...) > ROUNDING`, which would let NaN pass.
    if not abs(math.fsum(o.probability for o in outcomes) - 1.0) <= ROUNDING:
        raise ArgumentError(
            f"enumerate: the values of {address!r} have the probabilities {[o.probability for o in outcomes]}, whose "
            f"sum is not one: {distribution!r} does not draw by the density that it announces, or has no value at all."
        )
    return outcomes


def either_way(log_alpha: Any) -> list[Outcome]:
    """Return both ways in which a step with this acceptance ratio can end."""
    alpha = float(np.exp(min(float(log_alpha), 0.0)))
    return [Outcome(alpha, True), Outcome(1 - alpha, False)]


class Dice:
    """What a Markov kernel is given in place of a key, to choose one of finitely many ways: every one is gone."""

    def __init__(self, choose: Callable[[Callable[[], list[Outcome]]], Any]) -> None:
        self._choose = choose

    def roll(self, probabilities: Any) -> Any:
        """Return an index, with these probabilities."""
        return self._choose(lambda: [Outcome(float(p), i) for i, p in enumerate(np.asarray(probabilities))])


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
        # The middle of a piece that rounding left at the end may round to one.
        uniforms = np.minimum([(low + high) / 2 for low, high in pieces], np.nextafter(1.0, 0.0))
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


def frozen(x: Any) -> Any:
    """Return something to look x up by: arrays by their bytes, objects that cannot be hashed by where they are.

    Numbers that are equal and not the same, such as 1, 1.0 and True or the two zeros, are told apart.
    """
    match x:
        case dict():
            return tuple((k, frozen(v)) for k, v in sorted(x.items()))
        case Map():
            return frozen(dict(x)), frozen(dict(x.masks))
        case Values():
            return frozen(x.leaves), x.varies, x.structure, frozen(x.score)
        case list() | tuple():
            return type(x), tuple(map(frozen, x))
        case np.ndarray() if x.dtype == object:
            return tuple(map(frozen, x))
        case np.ndarray() | np.generic() | jax.Array():
            array = np.asarray(x)
            return (type(x), array.shape, array.dtype.str, array.tobytes())
        case float():
            return float, x.hex()
        case _:
            try:
                hash(x)
            except TypeError:
                return id(x)
            return type(x), x


def contents(x: Any) -> Any:
    """Return all that x is made of, to look up what depends on nothing else.

    Raises:
        TypeError: x is made of objects that may change.
    """
    match x:
        case dist.Distribution() | dist.transforms.Transform() | dist.constraints.Constraint():
            return type(x), contents(vars(x))
        case dict():
            return tuple((k, contents(v)) for k, v in x.items())
        case list() | tuple():
            return type(x), tuple(map(contents, x))
        case None | bool() | int() | str() | float() | np.ndarray() | np.generic() | jax.Array():
            return frozen(x)
        case _:
            raise TypeError(f"{type(x).__name__} may change")
