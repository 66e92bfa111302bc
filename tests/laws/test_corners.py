"""Programs at the edge of the language, each of which was wrong once."""

from typing import Any

import jax
import numpy as np
import pytest

import steelyard as sy
from tests.laws.comparison import assert_same, log_density, trace_of
from tests.laws.finite import Factor, Finite, Observe, Sample, Table, When, row_of

ROWS = ((0.13, 0.87), (0.71, 0.29))
V = Sample("v", ROWS)
KERNEL = Table((Sample("v", ((0.38, 0.62), (0.94, 0.06))),))
# z decides whether there is a variable v, and in which state it leaves the program.
OPTIONAL = Table((Sample("z", ((0.38, 0.62),)), When(0, (V,)), Observe("x", ROWS, 1)))


def test_rename_of_a_variable_that_no_particle_has() -> None:
    sy.testing.assert_properly_weighted(sy.rename(OPTIONAL, {"v": "u"}), particles=2)


def test_rename_of_a_variable_that_only_particles_had_which_are_gone() -> None:
    """Resampling leaves nobody with "v", which the trace then names but no density."""
    model = Table((Sample("z", ((0.38, 0.62),)), When(0, (V, Factor("y", (-np.inf, 0.7))))))
    q = sy.metropolis(Table((Sample("z", ((0.13, 0.87),)), V)), sy.resample(model), steps=0)
    sy.testing.assert_properly_weighted(sy.rename(q, {"v": "u"}), particles=2)


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


def test_addresses_do_not_depend_on_a_flag_that_is_known() -> None:
    q = sy.rename(Table((When(0, (V,)),)), {"v": "u"})
    for argument in (0, 1):
        assert sy.addresses(q, argument).trace == {"u"}


def test_move_to_a_version_that_is_there_already_is_an_error() -> None:
    q = sy.move(sy.prev(KERNEL), sy.move(KERNEL, Table((V,))))
    for engine in ("vectorized", "universal"):
        with pytest.raises(sy.AddressError, match="v′"):
            sy.evaluate(q, jax.random.key(0), particles=2, engine=engine)


def test_the_density_of_a_move_whose_old_value_decided_what_there_is() -> None:
    q = sy.move(KERNEL, Table((V, When(0, (Sample("u", ROWS),)))))
    with jax.enable_x64(True):
        for _, out in sy.testing.enumerate(q, particles=1):
            found = sy.log_density(q, trace_of(out, 0))
            np.testing.assert_allclose(found, log_density(out)[0], err_msg=str(trace_of(out, 0)))


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


def test_a_kernel_that_moves_a_variable_in_some_particles_only_is_not_silently_wrong() -> None:
    """The old value would be at v or at its previous version depending on what is sampled after it."""
    kernel = Table((When(0, (Sample("v", ((0.38, 0.62), (0.94, 0.06))),)),))
    model = Table((V, Factor("f", (0.2, -0.4))))
    q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, model))
    with pytest.raises(AssertionError, match="not properly weighted"):
        sy.testing.assert_properly_weighted(q, particles=2)
    with pytest.raises(sy.AddressError, match="'v'"):
        sy.evaluate(q, jax.random.key(0), 0, particles=20)


def test_a_threshold_of_one_treats_weights_that_are_equal_up_to_rounding_as_equal() -> None:
    log_value = 0.8216181435011584
    q = Table((V, Factor("f", (log_value, np.nextafter(log_value, 1.0)))))
    sy.testing.assert_properly_weighted(sy.resample(q, threshold=1.0), particles=3)
