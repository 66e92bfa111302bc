"""Programs that branch, loop and recurse on what they sample, under every combinator, against enumeration."""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.types import Method
from tests.running import KEY, universal

Tree = int | tuple["Tree", "Tree"]


@dataclass(frozen=True)
class Finite:
    """The distribution on 0, ..., n - 1 with these probabilities, in plain Python, which enumeration is fast on."""

    probabilities: tuple[float, ...]

    def sample(self, key: jax.Array) -> int:
        return int(np.searchsorted(np.cumsum(self.probabilities), float(jax.random.uniform(key)), side="right"))

    def log_prob(self, value: Any) -> float:
        possible = 0 <= int(value) < len(self.probabilities)
        return math.log(self.probabilities[int(value)]) if possible else -math.inf

    def enumerate_support(self) -> range:
        return range(len(self.probabilities))


def coin(probability: float) -> Finite:
    return Finite((1 - probability, probability))


def geometric(s: sy.State, stop: float, limit: int, depth: int = 0) -> int:
    """The number of failures before the first success, at most `limit`, by recursion."""
    if depth == limit or s.sample(f"stop{depth}", coin(stop)) == 1:
        return depth
    return geometric(s, stop, limit, depth + 1)


def waiting(s: sy.State) -> int:
    n = geometric(s, 0.4, limit=4)
    s.observe("x", Finite((0.1 + 0.15 * n, 0.9 - 0.15 * n)), 1)
    return n


def impatient(s: sy.State) -> int:
    """A proposal that stops earlier: it lacks variables of the target, and has one of its own."""
    mood = s.sample("mood", coin(0.3))
    return geometric(s, 0.5 + 0.2 * mood, limit=2)


def grow(s: sy.State, leaf: float, path: str = "r") -> Tree:
    """A binary tree of random depth with a value at every leaf; at most two levels deep."""
    if len(path) == 3 or s.sample(f"leaf {path}", coin(leaf)) == 1:
        return int(s.sample(f"value {path}", Finite((0.2, 0.5, 0.3))))
    return grow(s, leaf, path + "0"), grow(s, leaf, path + "1")


def total(tree: Tree) -> int:
    return tree if isinstance(tree, int) else total(tree[0]) + total(tree[1])


def forest(s: sy.State) -> Tree:
    tree = grow(s, 0.7)
    s.factor("x", -0.4 * abs(total(tree) - 3))
    return tree


def seedling(s: sy.State) -> None:
    grow(s, 0.8)


def universe(s: sy.State) -> tuple[int, ...]:
    """An unknown number of objects, each of one of two kinds, of which one count is seen."""
    n = s.sample("n", Finite((0.2, 0.5, 0.3)))
    kinds = tuple(int(s.sample(f"kind{i}", coin(0.25))) for i in range(n))
    s.observe("seen", Finite((0.7, 0.2, 0.1)), abs(sum(kinds) - 1))
    return kinds


def guess(s: sy.State) -> tuple[int, ...]:
    n = s.sample("n", Finite((0.4, 0.3, 0.3)))
    return tuple(int(s.sample(f"kind{i}", coin(0.5))) for i in range(n))


def jump(s: sy.State, kinds: tuple[int, ...]) -> tuple[int, ...]:
    """Changes the number of objects, and samples those anew that there are."""
    n = s.sample("n", Finite((0.1, 0.6, 0.3)) if len(kinds) < 2 else Finite((0.3, 0.6, 0.1)))
    return tuple(int(s.sample(f"kind{i}", coin(0.3 + 0.1 * len(kinds)))) for i in range(n))


def label(s: sy.State, value: Any) -> int:
    """A kernel whose variables depend on the value that it runs on."""
    weight = value if isinstance(value, int) else len(value)
    if weight > 0:
        s.sample("label", coin(0.2 + 0.1 * weight))
    return s.sample("mark", coin(0.6))


PROGRAMS: dict[str, Any] = {
    "geometric": waiting,
    "tree": forest,
    "universe": universe,
    "propose geometric": sy.propose(waiting, impatient),
    "propose tree": sy.propose(forest, seedling),
    "extend": sy.extend(universe, label),
    "propose an extend": sy.propose(sy.extend(universe, label), sy.compose(label, guess)),
    "compose": sy.compose(label, sy.propose(universe, guess)),
    "move": sy.move(jump, universe),
    "move back": sy.propose(sy.extend(universe, sy.prev(jump)), sy.move(jump, sy.propose(universe, guess))),
    "rename": sy.rename(universe, {"kind1": "second", "n": "number"}),
    "propose a rename": sy.propose(sy.rename(universe, {"kind1": "b"}), sy.rename(guess, {"kind1": "b", "kind0": "a"})),
    "prev": sy.prev(waiting),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_particle_is_properly_weighted(name: str) -> None:
    sy.testing.assert_properly_weighted(PROGRAMS[name], particles=1)


@pytest.mark.parametrize("method", ["systematic", "stratified", "multinomial", "residual"])
def test_two_particles_are_properly_weighted_after_resampling(method: str) -> None:
    q = sy.resample(sy.propose(universe, guess), method=cast(Method, method))
    sy.testing.assert_properly_weighted(q, particles=2)


def test_a_move_after_resampling_where_needed() -> None:
    def small(s: sy.State) -> int:
        n = s.sample("n", coin(0.4))
        if n == 1:
            s.sample("kind", coin(0.25))
        s.observe("seen", coin(0.2 + 0.5 * n), 1)
        return n

    def kernel(s: sy.State, n: int) -> int:
        n = s.sample("n", coin(0.3 + 0.4 * n))
        if n == 1:
            s.sample("kind", coin(0.6))
        return n

    q = sy.propose(sy.extend(small, sy.prev(kernel)), sy.move(kernel, sy.resample(small, threshold=0.9)))
    sy.testing.assert_properly_weighted(q, particles=2)


def test_values_may_be_any_python_object() -> None:
    out = universal(forest, particles=12)
    trees = list(out.values.tree)
    assert {type(tree) for tree in trees} == {int, tuple}
    for l, tree in enumerate(trees):
        np.testing.assert_allclose(out.log_weight[l], -0.4 * abs(total(tree) - 3))
        assert total(tree) == sum(v for a, v in out.trace.of_particle(l).items() if a.startswith("value"))


def exact_posterior(q: Any) -> tuple[float, dict[Any, float]]:
    """Return Z and the posterior of the number of failures, by enumeration of the target."""
    mass: dict[Any, float] = defaultdict(float)
    for probability, out in sy.testing.enumerate(q, particles=1):
        mass[out.values.tree[0]] += probability * math.exp(out.log_weight[0])
    z = sum(mass.values())
    return z, {n: m / z for n, m in mass.items()}


def test_enumeration_is_the_geometric_distribution_by_hand() -> None:
    prior = [0.4, 0.24, 0.144, 0.0864, 0.1296]
    likelihood = [0.9 - 0.15 * n for n in range(5)]
    z, posterior = exact_posterior(waiting)
    np.testing.assert_allclose(z, np.dot(prior, likelihood))
    for n in range(5):
        np.testing.assert_allclose(posterior[n], prior[n] * likelihood[n] / z)


@pytest.mark.parametrize("name", ["geometric", "propose geometric"])
def test_sampling_agrees_with_enumeration(name: str) -> None:
    z, posterior = exact_posterior(waiting)
    out = universal(PROGRAMS[name], particles=600)
    w = np.exp(out.log_weight)
    assert abs(w.mean() - z) < 4 * w.std() / math.sqrt(600)
    failures = out.expect(lambda trace: sum(1 for a, v in trace.items() if a.startswith("stop") and v == 0))
    exact = sum(n * p for n, p in posterior.items())
    assert abs(failures - exact) < 4 * 1.3 * (w.std() / w.mean() + 1) / math.sqrt(600)
    assert abs(exact - 0.9) < 0.2


def test_one_key_gives_the_same_particles_in_both_engines() -> None:
    def model(s: sy.State, x: float) -> jax.Array:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.sample("v", dist.Categorical(np.array([0.2, 0.5, 0.3])))
        s.observe("x", dist.Normal(z, 0.5), x)
        return z

    def kernel(s: sy.State, z: jax.Array) -> jax.Array:
        return s.sample("z", dist.Normal(0.5 * z, 0.7))

    q = sy.propose(sy.extend(model, sy.prev(lambda s, z: kernel(s, z))), sy.resample(model, method="stratified"))
    q = sy.move(kernel, sy.resample(q))
    one, other = (sy.evaluate(q, KEY, 0.4, particles=6, engine=e) for e in ("vectorized", "universal"))
    assert (np.asarray(one.ancestors) == other.ancestors).all()
    for address in ("z", "v", sy.previous("z")):
        np.testing.assert_allclose(one.trace[address], other.trace[address], rtol=1e-5)
    np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=1e-4)
    assert [level.label for level in one.levels] == [level.label for level in other.levels]
