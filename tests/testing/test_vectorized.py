"""Outcomes in the vectorized engine are those of the universal one, and mistakes that only it can make are seen."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler.reuse import EquationCache
from steelyard.testing import checks


def model(s: sy.State) -> Any:
    z = s.sample("z", dist.Bernoulli(0.3))
    s.observe("x", dist.Bernoulli(0.2 + 0.5 * z), 1)
    return z


def guide(s: sy.State) -> Any:
    return s.sample("z", dist.Bernoulli(0.6))


def kernel(s: sy.State, z: Any) -> Any:
    return s.sample("z", dist.Bernoulli(0.4 + 0.3 * z))


def observing(s: sy.State, z: Any) -> Any:
    z = kernel(s, z)
    s.observe("x", dist.Bernoulli(0.9 - 0.5 * z), 1)
    return z


def only_observes(s: sy.State, z: Any) -> Any:
    s.observe("x", dist.Bernoulli(0.9 - 0.5 * z), 1)
    return z


def vectors(s: sy.State) -> Any:
    z = s.sample("z", dist.Bernoulli(jnp.array([0.2, 0.6])))
    with s.when(z[0] == 1):
        u = s.sample("u", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    s.factor("f", 0.3 * z[0] - 0.7 * u * z[1])
    return {"z": z, "constant": 2.0}


def sweep(k: Any, q: Any) -> Any:
    return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(k, q))


PROGRAMS = {
    "a vector and a variable that some particles lack": vectors,
    "propose": sy.propose(model, guide),
    "missing": sy.propose(model, lambda s: None),
    "resample": sy.resample(sy.propose(model, guide), method="residual"),
    "threshold": sy.resample(sy.propose(model, guide), threshold=0.83),
    "sweep": sweep(kernel, sy.resample(sy.propose(model, guide))),
    "observing": sweep(observing, sy.propose(model, guide)),
    "observing again": sy.propose(model, sy.move(only_observes, sy.propose(model, guide))),
    "scan": sy.scan(lambda q, x: sweep(kernel, sy.resample(q)), sy.propose(model, guide), None, length=1),
}


def by_trace(q: Any, engine: Any) -> dict[Any, np.ndarray]:
    """Return for each pair of traces its probability, and the average of weights, densities and ancestors."""
    found: dict[Any, Any] = {}
    for probability, out in sy.testing.enumerate(q, particles=2, engine=engine):
        mark = tuple(checks._key(out.trace.of_particle(l)) for l in range(2))
        ancestors = np.arange(2) if out.ancestors is None else out.ancestors
        densities = [np.where(out.log_density.present(a), rho, 0.0) for a, rho in out.log_density.items()]
        numbers = np.concatenate([[1.0], np.exp(out.log_weight), np.exp(np.sum(densities, axis=0)), ancestors])
        found[mark] = found.get(mark, 0.0) + probability * numbers
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_have_the_same_outcomes(name: str) -> None:
    left, right = (by_trace(PROGRAMS[name], engine) for engine in ("universal", "vectorized"))
    assert left.keys() == right.keys()
    for mark, numbers in left.items():
        np.testing.assert_allclose(numbers, right[mark], rtol=1e-12, err_msg=str(mark))


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_are_checked(name: str) -> None:
    for engine in ("universal", "vectorized", None):
        sy.testing.assert_properly_weighted(PROGRAMS[name], particles=2, engine=engine)


@pytest.fixture
def reuse_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take densities over also where a kernel observed something at the same address."""
    reuse = EquationCache.reuse

    def too_much(self: EquationCache, q: Any, c0: Any, e1: Any) -> Any:
        if (origin := e1.facts.provenance) is not None:
            origin = replace(origin, replaced=origin.replaced & set(e1.trace))
            e1 = replace(e1, facts=replace(e1.facts, provenance=origin))
        return reuse(self, q, c0, e1)

    monkeypatch.setattr(EquationCache, "reuse", too_much)


AGAIN = sy.propose(model, sy.move(only_observes, sy.propose(model, guide)))


def test_a_density_that_is_wrongly_reused_is_found(reuse_too_much: None) -> None:
    """By the vectorized engine, which is checked by default; the universal one reuses nothing."""
    sy.testing.assert_properly_weighted(AGAIN, particles=1, engine="universal")
    for engine in ("vectorized", None):
        with pytest.raises(AssertionError, match="not properly weighted"):
            sy.testing.assert_properly_weighted(AGAIN, particles=1, engine=engine)


def test_programs_of_many_ways_are_not_run_in_both_engines_unasked(
    reuse_too_much: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "FEW", 1)
    sy.testing.assert_properly_weighted(AGAIN, particles=1)


def test_a_program_that_branches_is_checked_in_the_universal_engine_only() -> None:
    def branches(s: sy.State) -> None:
        if s.sample("z", dist.Bernoulli(0.3)) == 1:
            s.sample("u", dist.Bernoulli(0.6))

    sy.testing.assert_properly_weighted(branches, particles=2)
    with pytest.raises(sy.ArgumentError, match="branches on what it sampled"):
        sy.testing.assert_properly_weighted(branches, particles=2, engine="vectorized")


def test_an_engine_that_there_is_not_is_an_error(as_users_run_it: None) -> None:
    with pytest.raises(sy.ArgumentError, match="'python'"):
        list(sy.testing.enumerate(model, particles=1, engine="python"))  # pyright: ignore


def test_a_scan_that_keeps_is_checked_for_its_newest_variables() -> None:
    def first(s: sy.State) -> Any:
        z = s.sample("z", dist.Bernoulli(0.3))
        s.factor("y", 0.4 * z)
        return z

    def step(q: Any, y: Any) -> Any:
        def transition(s: sy.State, z: Any) -> Any:
            z = s.sample("z", dist.Bernoulli(0.2 + 0.5 * z))
            s.factor("y", y * z)
            return z

        return sy.move(transition, sy.resample(q))

    q = sy.scan(step, first, jnp.array([-0.8]), keep=["z"])
    for program in (q, sy.resample(q, method="multinomial")):
        for engine in ("universal", "vectorized"):
            sy.testing.assert_properly_weighted(program, particles=2, engine=engine)
