"""Rules with one mistake each, to see that exact enumeration finds it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import steelyard as sy
from steelyard.compiler.reuse import EquationCache
from steelyard.language.programs import Compose, Detach, Metropolis, Program, Propose, Resample, Scan
from steelyard.maps import Domain, dom, log_product
from steelyard.particles import resampling
from steelyard.particles.resampling import RESAMPLERS
from steelyard.semantics import judgement, markov, rules, scans, transports
from steelyard.semantics.engine import Premise, Rule
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.record import Record
from steelyard.types import EngineName
from tests.laws.finite import Factor, Observe, Sample, Table, When
from tests.laws.markov import Turn

RIGHT_RESAMPLE, RIGHT_DETACH = rules.resample, rules.detach
RIGHT_BEGIN, RIGHT_FINISH = scans.begin, scans.finish
RIGHT_REUSE = EquationCache.reuse


def propose(
    engine: Any,
    q: Propose,
    c0: Any,
    *,
    divided: bool = True,
    without_superfluous: bool = True,
    by_particle: bool = True,
    marginal: bool = True,
    arguments_follow: bool = True,
    without_missing: bool = True,
) -> Rule:
    """Propose, from which a part of the rule can be taken away."""
    e1 = yield Premise(q.q, c0)
    follow = arguments_follow and e1.ancestors is not None
    e2 = yield Premise(q.p, c0.reindex(e1.ancestors) if follow else c0, e1.trace)
    superfluous = dom(e1.trace) - dom(e2.trace)
    if not by_particle:
        superfluous = Domain({a: m for a, m in dom(e1.trace).items() if a not in e2.trace})
    counted = dom(e1.log_density) - (superfluous if without_superfluous else Domain())
    u1 = log_product(e1.log_density, counted, engine.log_one)
    w2 = e2.log_weight if without_missing else log_product(e2.log_density, dom(e2.log_density), engine.log_one)
    w = w2 + e1.log_weight - (np.where(np.isneginf(u1), np.inf, u1) if divided else 0.0)
    e3 = e2.marginal if marginal else e2
    return Evaluation(e3.values, e3.trace, e3.log_density, w, Record(ancestors=e1.ancestors))


def compose(engine: Any, q: Compose, c0: Any, tau0: Any) -> Rule:
    """Compose, where what q1 left does not follow the ancestors that q2 took."""
    e1 = yield Premise(q.q1, c0, tau0)
    e2 = yield Premise(q.q2, e1.values.as_arguments(), tau0)
    out = e1.then(e2)
    return replace(out, record=replace(out.record, ancestors=e2.ancestors))


def resample_keeping_weights(engine: Any, q: Resample, c0: Any) -> Rule:
    """Resample, where a particle leaves with the weight of its ancestor."""
    e = yield Premise(q.q, c0)
    ancestors = resampling.ancestors(e.log_weight, q.method, engine.noise(q.method, e.log_weight), e.particles)
    return e.reindex(ancestors)


def resample_averaging_always(engine: Any, q: Resample, c0: Any) -> Rule:
    """Resample, where weights are averaged also if the threshold let the particles pass."""
    out = yield from RIGHT_RESAMPLE(engine, q, c0)
    average = np.logaddexp.reduce(out.log_weight) - np.log(out.particles)
    return replace(out, log_weight=np.full(out.particles, average))


def detach_without_ancestors(engine: Any, q: Detach, c0: Any) -> Rule:
    """Detach, which does not tell that its particles were resampled."""
    out = yield from RIGHT_DETACH(engine, q, c0)
    return replace(out, record=replace(out.record, ancestors=None))


def scan_without_weights(engine: Any, q: Scan, e0: Evaluation, c0: Any) -> Any:
    """Begin a scan with particles of weight one."""
    carried, arguments = RIGHT_BEGIN(engine, q, e0, c0)
    return replace(carried, log_weight=engine.log_one), arguments


def scan_without_ancestors(q: Scan, e0: Evaluation, last: Evaluation, levels: Any, ancestors: Any, kept: Any) -> Any:
    """Finish a scan, which tells only what its start resampled."""
    out = RIGHT_FINISH(q, e0, last, levels, ancestors, kept)
    return replace(out, record=replace(out.record, ancestors=e0.ancestors))


def reuse_of_what_was_replaced(tables: EquationCache, q: Program, c0: Any, e1: Evaluation) -> Any:
    """Reuse, which knows that variables changed, and not that a kernel observed something at an address."""
    if (origin := e1.facts.provenance) is not None:
        origin = replace(origin, replaced=origin.replaced & set(e1.trace))
        e1 = replace(e1, facts=replace(e1.facts, provenance=origin))
    return RIGHT_REUSE(tables, q, c0, e1)


def reuse_in_spite_of_moves(tables: EquationCache, q: Program, c0: Any, e1: Evaluation) -> Any:
    """Reuse, which forgets one of the variables that changed."""
    if (origin := e1.facts.provenance) is not None:
        origin = replace(origin, replaced=frozenset(sorted(origin.replaced)[1:]))
        e1 = replace(e1, facts=replace(e1.facts, provenance=origin))
    return RIGHT_REUSE(tables, q, c0, e1)


def _sorted(method: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(RESAMPLERS, method, RESAMPLERS[method]._replace(ordered=False))


def _part(of: Any, name: str, wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(of, name, wrong)


def _rule(kind: type[Program], wrong: Callable[..., Rule]) -> Callable[[pytest.MonkeyPatch], None]:
    table = judgement.RULES if kind in judgement.RULES else judgement.INFERENCE_RULES
    return lambda patch: patch.setitem(table, kind, wrong)


def _edited(module: Any, name: str, right: str, wrong: str) -> Callable[..., Any]:
    """Return a function of a module with another expression in its text."""
    source = inspect.getsource(getattr(module, name))
    assert source.count(right) == 1
    scope: dict[str, Any] = {}
    exec(source.replace(right, wrong), vars(module), scope)  # noqa: S102
    return scope[name]


_A = Sample("a", ((0.13, 0.87),))
_MODEL = Table((Sample("a", ((0.71, 0.29),)), Observe("x", ((0.94, 0.06), (0.38, 0.62)), 0)))
_GUIDE = Table((_A,))
_WEIGHTED = Table((_A, Factor("f", (0.7, -1.3))))
_NEXT = Table((Sample("b", ((0.71, 0.29), (0.13, 0.87))), Factor("g", (0.2, -0.4))))
_KERNEL = Table((Sample("a", ((0.38, 0.62), (0.94, 0.06))),))
_AUXILIARY = Table((Sample("u", ((0.13, 0.87), (0.71, 0.29))), Sample("a", ((0.94, 0.06), (0.38, 0.62)))))
# Its last variable moves, and the first stays; what it observes depends on nothing.
_PAIR = Table((_A, Sample("b", ((0.38, 0.62), (0.94, 0.06))), Observe("x", ((0.94, 0.06),), 0)))
_UPDATE = Table((Sample("b", ((0.71, 0.29), (0.13, 0.87))),))
_WEIGHING = Table((Sample("b", ((0.71, 0.29), (0.13, 0.87))), Observe("x", ((0.13, 0.87), (0.71, 0.29)), 0)))
_OPTIONAL = Table((Sample("u", ((0.38, 0.62),)), When(0, (_A,)), Factor("f", (0.2, 0.7))))


@dataclass(frozen=True)
class Mistake:
    """A mistake in a rule, the simplest program that shows it, and what generated programs need to have for that.

    None: those of few outcomes do not show it.

    Two particles are symmetric enough to hide it if their ancestors are sorted; three are not.
    """

    name: str
    install: Callable[[pytest.MonkeyPatch], None]
    shows: Program
    needs: str | None
    particles: int = 2
    engine: EngineName = "universal"


def _update(f: Any, q: Program, reverse: Any = _UPDATE) -> Program:
    return sy.propose(sy.extend(_PAIR, sy.prev(reverse)), sy.move(f, q))


_WALK = sy.metropolis(_KERNEL, _WEIGHTED)

MISTAKES = (
    Mistake(
        "metropolis without the density of the way back",
        _rule(Metropolis, _edited(markov, "metropolis", "there + log_ratio(", "there + 0 * log_ratio(")),
        _WALK,
        needs="metropolis",
    ),
    Mistake(
        "metropolis without the density of the target",
        _rule(Metropolis, _edited(markov, "metropolis", "log_alpha = there +", "log_alpha = 0 * there +")),
        _WALK,
        needs="metropolis",
    ),
    Mistake(
        "metropolis with steps that do not lead back",
        _rule(
            Metropolis,
            _edited(markov, "metropolis", "either(one_way, log_alpha != log_alpha)", "log_alpha != log_alpha"),
        ),
        sy.metropolis(Table((Sample("u", ((0.38, 0.62),)),)), _OPTIONAL),
        needs="metropolis that may change which variables there are",
    ),
    Mistake(
        "transport forwards under substitution",
        _part(transports, "_inside", _edited(transports, "_inside", "Map(outside), back=True)", "Map(outside))")),
        sy.metropolis(_KERNEL, sy.transport(Turn(3), Table((Sample("a", ((0.5, 0.3, 0.2),)),)))),
        needs=None,
    ),
    Mistake(
        "no division by u1",
        _rule(Propose, partial(propose, divided=False)),
        sy.propose(_MODEL, _GUIDE),
        needs="propose",
    ),
    Mistake(
        "superfluous variables in u1",
        _rule(Propose, partial(propose, without_superfluous=False)),
        sy.propose(_MODEL, _AUXILIARY),
        needs="a superfluous variable",
    ),
    Mistake(
        "superfluous variables by address, not by particle",
        _rule(Propose, partial(propose, by_particle=False)),
        sy.propose(_OPTIONAL, _GUIDE),
        needs="a variable that only some targets have",
    ),
    Mistake(
        "auxiliary variables not marginalised",
        _rule(Propose, partial(propose, marginal=False)),
        sy.propose(sy.extend(_MODEL, sy.prev(_KERNEL)), sy.move(_KERNEL, _GUIDE)),
        needs="extend",
    ),
    Mistake(
        "arguments of a propose not reindexed",
        _rule(Propose, partial(propose, arguments_follow=False)),
        sy.compose(sy.propose(_NEXT, sy.resample(_NEXT)), _WEIGHTED),
        needs="a resample inside of a propose, after another program",
    ),
    Mistake(
        "missing variables in w2",
        _rule(Propose, partial(propose, without_missing=False)),
        sy.propose(_AUXILIARY, _GUIDE),
        needs="a missing variable",
    ),
    Mistake(
        "first part of a compose not reindexed",
        _rule(Compose, compose),
        sy.compose(sy.resample(_NEXT), _WEIGHTED),
        needs="compose of a resample after a weighted program",
    ),
    Mistake(
        "weights kept by resample",
        _rule(Resample, resample_keeping_weights),
        sy.resample(_WEIGHTED),
        needs="resample",
    ),
    Mistake(
        "weights averaged without resampling",
        _rule(Resample, resample_averaging_always),
        sy.resample(_WEIGHTED, threshold=0.45),
        needs="a threshold",
    ),
    Mistake(
        "ancestors forgotten by detach",
        _rule(Detach, detach_without_ancestors),
        sy.compose(sy.detach(sy.propose(_NEXT, sy.resample(_NEXT))), _WEIGHTED),
        needs="compose of a resample after a weighted program",
    ),
    Mistake(
        "weights forgotten where a scan begins",
        _part(scans, "begin", scan_without_weights),
        sy.scan(lambda q, x: sy.resample(q), _WEIGHTED, None, length=1),
        needs="scan",
    ),
    Mistake(
        "ancestors forgotten by a scan",
        _part(scans, "finish", scan_without_ancestors),
        sy.compose(sy.scan(lambda q, x: sy.resample(q), _NEXT, None, length=1), _WEIGHTED),
        needs="compose of a resample after a weighted program",
    ),
    Mistake(
        "a density reused that a kernel has replaced",
        _part(EquationCache, "reuse", reuse_of_what_was_replaced),
        _update(_WEIGHING, sy.propose(_PAIR, _PAIR)),
        needs="a kernel that observes what its target observes",
        particles=1,
        engine="vectorized",
    ),
    Mistake(
        "a density reused whose variable moved",
        _part(EquationCache, "reuse", reuse_in_spite_of_moves),
        _update(_UPDATE, sy.propose(_PAIR, _PAIR)),
        needs="two sweeps for one target",
        particles=1,
        engine="vectorized",
    ),
    *(
        Mistake(
            f"sorted {method} ancestors",
            _sorted(method),
            sy.resample(_WEIGHTED, method=method),
            needs=f"{method} resampling of three weights",
            particles=3,
        )
        for method in ("systematic", "stratified", "residual")
    ),
)
