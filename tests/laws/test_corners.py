"""Programs at the edge of the language, each of which was wrong once."""

from typing import Any

import jax
import pytest

import steelyard as sy
from tests.laws.comparison import assert_same
from tests.laws.finite import Finite, Observe, Sample, Table, When, row_of

ROWS = ((0.13, 0.87), (0.71, 0.29))
V = Sample("v", ROWS)
KERNEL = Table((Sample("v", ((0.38, 0.62), (0.94, 0.06))),))
# z decides whether there is a variable v, and in which state it leaves the program.
OPTIONAL = Table((Sample("z", ((0.38, 0.62),)), When(0, (V,)), Observe("x", ROWS, 1)))


def test_rename_of_a_variable_that_no_particle_has() -> None:
    sy.testing.assert_properly_weighted(sy.rename(OPTIONAL, {"v": "u"}), particles=2)


def test_rename_of_a_variable_that_there_never_is_is_an_error() -> None:
    """Where that can be known: in the vectorized engine, which knows the addresses that no particle has."""
    with pytest.raises(sy.AddressError, match="no address 'w'"):
        sy.evaluate(sy.rename(OPTIONAL, {"w": "u"}), jax.random.key(0), particles=2)


def test_a_variable_after_an_absent_one_is_drawn_alike_in_both_engines() -> None:
    q = Table((Sample("z", ((0.38, 0.62),)), When(0, (V,)), *(Sample(f"after {i}", ROWS) for i in range(5))))
    with jax.enable_x64(True):
        left, right = (
            sy.evaluate(q, jax.random.key(0), particles=20, engine=engine) for engine in ("vectorized", "universal")
        )
        assert_same(left, right)


def test_extend_by_a_variable_that_only_some_particles_have() -> None:
    q = sy.propose(sy.extend(KERNEL, Table((Sample("a", ROWS), When(0, (Sample("b", ROWS),))))), KERNEL)
    sy.testing.assert_properly_weighted(q, particles=2)
    sy.evaluate(q, jax.random.key(0), 0, particles=2)


def test_a_kernel_may_move_a_variable_wherever_it_is() -> None:
    """z, which does not move, decides whether a particle has v; where it has, v moves."""

    def model(s: sy.State) -> Any:
        z = s.sample("z", Finite((0.38, 0.62)))
        with s.when(z == 1):
            v = s.sample("v", Finite((0.13, 0.87)))
        s.observe("x", Finite(row_of(ROWS, z * v)), 1)
        return z

    def kernel(s: sy.State, z: Any) -> Any:
        with s.when(z == 1):
            s.sample("v", Finite((0.38, 0.62)))
        return z

    q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(model)))
    sy.testing.assert_properly_weighted(q, particles=2)
    sy.evaluate(q, jax.random.key(0), particles=20)
