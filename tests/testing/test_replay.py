"""Outcomes found by replaying what branches have in common are those of running every branch from the start."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.language.programs import Primitive
from steelyard.language.state import Run, State, run
from steelyard.maps import Map
from steelyard.testing.outcomes import Outcome, every_value
from steelyard.testing.replay import CHANGED


def plain(f: Any) -> list[Outcome]:
    """Every outcome of a program, each by a run of its own that looks nothing up: the slow reference."""
    found: list[Outcome] = []
    chosen: list[int] = []
    while True:
        sizes: list[int] = []
        probability = 1.0

        def draw(site: int, address: str, distribution: Any) -> Any:
            nonlocal probability
            alternatives = [o for o in every_value(address, distribution) if o.probability > 0]
            index = chosen[len(sizes)] if len(sizes) < len(chosen) else 0  # noqa: B023
            sizes.append(len(alternatives))  # noqa: B023
            probability *= alternatives[index].probability
            return alternatives[index].result

        result = run(Primitive(f), (), draw, Map(), concrete=True)
        found.append(Outcome(probability, result))
        chosen += [0] * (len(sizes) - len(chosen))
        while chosen and chosen[-1] + 1 == sizes[len(chosen) - 1]:
            chosen.pop()
        if not chosen:
            return found
        chosen[-1] += 1


def bits(x: Any) -> Any:
    array = np.asarray(x)
    return array.shape, array.dtype.kind, array.tobytes() if array.dtype != bool else array.tolist()


def seen(e: sy.Evaluation) -> Any:
    trace, rho = e.trace.of_particle(0), e.log_density.of_particle(0)
    return [(a, bits(trace[a])) for a in trace], [(a, bits(float(rho[a]))) for a in rho]


def seen_plainly(result: Run) -> Any:
    trace, rho = result.trace, result.log_density
    return [(a, bits(trace[a])) for a in trace], [(a, bits(float(rho[a]))) for a in rho]


def generated(seed: int) -> Any:
    """A random program: what it samples, observes and branches on depends on what it sampled before."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(8, size=5)
    numbers = rng.uniform(0.1, 0.9, size=(5, 3))

    def program(s: State) -> Any:
        z: Any = 0
        for i, (kind, (a, b, c)) in enumerate(zip(kinds, numbers, strict=True)):
            match kind:
                case 0:
                    z = z + s.sample(f"x{i}", dist.Bernoulli(a + (0.95 - a) * b * (z % 2)))
                case 1:
                    z = z + s.sample(
                        f"x{i}", dist.Categorical(jnp.array([a, b * (z != 0), c]) / (a + b * (z != 0) + c))
                    )
                case 2 if z > 0:
                    z = s.sample(f"b{i}", dist.Bernoulli(a))
                case 2:
                    s.factor(f"f{i}", -np.inf if b < 0.3 else jnp.log(a))
                case 3:
                    with s.when(z == 1):
                        z = z + s.sample(f"m{i}", dist.Bernoulli(a))
                        s.observe(f"o{i}", dist.Bernoulli(b), 1)
                case 4:
                    z = z + s.sample(f"n{i}", dist.Binomial(int(z) % 3, a))
                case 5:
                    z = jnp.sum(s.sample(f"v{i}", dist.Bernoulli(jnp.full(int(z) % 3, b))))
                case 6:
                    s.observe(f"o{i}", dist.Uniform(0.0, 1.0 + z), np.array([1.5, a]))
                case _:
                    z = z + s.sample(f"d{i}", dist.DiscreteUniform(0, int(z) % 2))
        return z

    return program


@pytest.mark.parametrize("seed", range(12))
def test_every_outcome_is_that_of_a_run_of_its_own(seed: int) -> None:
    f = generated(seed)
    found = [*sy.testing.enumerate(f, particles=1)]
    with jax.enable_x64(True):
        expected = plain(f)
    assert len(found) == len(expected)
    for (p, e), (probability, result) in zip(found, expected, strict=True):
        assert p == pytest.approx(probability, rel=1e-15)
        assert seen(e) == seen_plainly(result)
        assert bits(e.value[0]) == bits(result.value)


def test_generated_programs_have_branches_masks_shapes_and_zeros() -> None:
    kinds = set()
    for seed in range(12):
        kinds |= set(np.random.default_rng(seed).choice(8, size=5).tolist())
    assert kinds == set(range(8))


def test_the_calls_that_branches_share_are_not_repeated() -> None:
    asked = []

    class Coin:
        """Asked for its values wherever a choice is new, and for its density at each of them."""

        def sample(self, key: Any) -> Any:
            raise NotImplementedError

        def enumerate_support(self) -> list[int]:
            return [0, 1]

        def log_prob(self, value: Any) -> Any:
            asked.append(value)
            return np.log(0.5)

    def program(s: State) -> None:
        for i in range(6):
            s.sample(f"x{i}", Coin())

    assert len([*sy.testing.enumerate(program, particles=1)]) == 2**6
    # Each node of the tree of choices: both values for their probabilities, and one density for each.
    nodes = sum(2**i for i in range(6))
    assert len(asked) == 4 * nodes


def test_all_that_calls_change_is_put_back() -> None:
    def program(s: State) -> None:
        before = {name: x.copy() if isinstance(x, dict | set) else x for name, x in vars(s).items()}
        s.sample("z", dist.Bernoulli(0.5))
        s.observe("x", dist.Bernoulli(0.5), 1)
        with s.when(False):
            s.sample("m", dist.Bernoulli(0.5))
        s.factor("f", 0.0)
        changed.update(name for name, x in vars(s).items() if x is not before[name] and x != before[name])

    changed: set[str] = set()
    run(Primitive(program), (), lambda *_: jnp.asarray(1), Map(), concrete=True)
    assert changed <= set(CHANGED)


def test_an_error_that_a_program_catches_is_raised_again() -> None:
    def program(s: State) -> Any:
        a = s.sample("a", dist.Bernoulli(0.3))
        try:
            s.sample("a", dist.Bernoulli(0.5))
        except sy.AddressError:
            s.sample("b", dist.Bernoulli(0.25))
        return a + s.sample("c", dist.Bernoulli(0.5))

    found = {tuple(int(e.trace[x][0]) for x in "abc"): p for p, e in sy.testing.enumerate(program, particles=1)}
    chances = itertools.product((0.7, 0.3), (0.75, 0.25), (0.5, 0.5))
    assert [*found.values()] == pytest.approx([a * b * c for a, b, c in chances])


def test_a_program_that_depends_on_something_else_is_refused() -> None:
    names = iter("abcdefgh")

    def program(s: State) -> None:
        s.sample(next(names), dist.Bernoulli(0.5))
        s.sample("z", dist.Bernoulli(0.5))

    with pytest.raises(sy.ArgumentError, match=r"called sample\('b', ...\) where it had called sample\('a', ...\)"):
        list(sy.testing.enumerate(program, particles=1))


@pytest.mark.parametrize("support", [[], [0]], ids=["empty", "half"])
def test_values_whose_probabilities_do_not_add_up_are_refused(support: Any) -> None:
    class Odd:
        def sample(self, key: Any) -> Any:
            raise NotImplementedError

        def enumerate_support(self) -> Any:
            return support

        def log_prob(self, value: Any) -> Any:
            return np.log(0.5)

    with pytest.raises(sy.ArgumentError, match="'z'.*sum is not one"):
        list(sy.testing.enumerate(lambda s: s.sample("z", Odd()), particles=1))
