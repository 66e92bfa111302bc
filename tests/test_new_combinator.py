"""A combinator from outside of the package: a class, a function, a rule and its target, and nothing else knows of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from rich.console import Console

import steelyard as sy
from steelyard.language.programs import Program, Programmable, program
from steelyard.language.rewrite import SAME_DENSITY
from steelyard.semantics.engine import Engine, Premise, Rule
from steelyard.semantics.judgement import INFERENCE_RULES
from steelyard.semantics.values import Values


@dataclass(frozen=True)
class Backwards(Program):
    """backwards(q): q's particles in the opposite order."""

    q: Program


def backwards(q: Programmable) -> Backwards:
    return Backwards(program(q))


def rule(engine: Engine, q: Backwards, c0: Values) -> Rule:
    """Backwards: the weights stay with their particles.

    c, tau, rho, w <- q(c0)    a = L, L - 1, ..., 1
    ------------------------------------------------
    c[a], tau[a], rho[a], w[a] <- backwards(q)(c0)
    """
    e = yield Premise(q.q, c0)
    xp = e.log_weight.__array_namespace__()
    return e.reindex(xp.arange(e.particles)[::-1])


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(INFERENCE_RULES, Backwards, rule)
    monkeypatch.setitem(SAME_DENSITY, Backwards, lambda q: q.q)
    yield


def model(s: sy.State) -> Any:
    z = s.sample("z", dist.Bernoulli(0.3))
    s.factor("f", 0.7 * z - 0.2)
    return z


def guide(s: sy.State) -> Any:
    return s.sample("z", dist.Bernoulli(0.6))


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_it_evaluates(engine: Any) -> None:
    plain, turned = (
        sy.evaluate(q, jax.random.key(0), particles=5, engine=engine)
        for q in (sy.propose(model, guide), backwards(sy.propose(model, guide)))
    )
    np.testing.assert_array_equal(turned.trace["z"], plain.trace["z"][::-1])
    np.testing.assert_array_equal(turned.log_weight, plain.log_weight[::-1])
    assert turned.log_z == pytest.approx(float(plain.log_z))


def test_it_is_properly_weighted_in_whatever_it_is_composed_with() -> None:
    for q in (backwards(sy.propose(model, guide)), sy.propose(model, backwards(sy.resample(backwards(guide))))):
        sy.testing.assert_properly_weighted(q, particles=2)


def test_it_has_a_target_and_a_density() -> None:
    assert sy.target(sy.resample(backwards(sy.propose(model, guide)))) == sy.target(model)
    assert sy.log_density(backwards(model), {"z": 1}) == sy.log_density(model, {"z": 1})


def test_it_is_shown_and_checked() -> None:
    console = Console(record=True, width=60)
    sy.show(backwards(sy.propose(model, guide)), console=console)
    assert "backwards\n└── propose" in console.export_text()
    assert not sy.check(sy.propose(model, backwards(guide)))
    (remark,) = sy.check(sy.propose(model, backwards(lambda s: None)))
    assert "backwards(<lambda>)" in str(remark)


def test_it_scans() -> None:
    def step(q: Any, x: Any) -> Any:
        def kernel(s: sy.State, z: Any) -> Any:
            return s.sample("z", dist.Normal(z + x, 1.0))

        return sy.move(kernel, backwards(q))

    def first(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0))

    q = sy.scan(step, first, jnp.arange(3.0), keep=["z"])
    rolled, written_out = (
        sy.evaluate(q, jax.random.key(0), particles=4, engine=e) for e in ("vectorized", "universal")
    )
    np.testing.assert_allclose(rolled.trajectories()["z"], written_out.trajectories()["z"], rtol=1e-6)


def test_a_combinator_without_a_rule_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(INFERENCE_RULES, Backwards)
    with pytest.raises(sy.GrammarError, match="backwards\\(model\\): there is no rule"):
        sy.evaluate(backwards(model), jax.random.key(0), particles=2)
