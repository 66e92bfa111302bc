"""Markov kernels: rules that move particles and leave the density that they are from, and so their weights, alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import jax
import numpy as np

from steelyard.devices.sums import total_in_any_order
from steelyard.language.describe import describe
from steelyard.language.programs import Mcmc, Metropolis, Primitive, Program, Scan, name_of
from steelyard.language.rewrite import target
from steelyard.maps import Domain, chosen, dom, either, log_ratio, select
from steelyard.particles import weights
from steelyard.semantics import markov_conditions as conditions
from steelyard.semantics.engine import Engine, Known, Premise, Rule, Trace
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.facts import Facts, Provenance
from steelyard.semantics.provenance import source_of
from steelyard.semantics.record import LevelSummary
from steelyard.semantics.values import Values
from steelyard.types import stop_gradient

# The evaluation of a program for one particle, at a trace.
At = Callable[[Trace], Evaluation]


def mcmc(engine: Engine, q: Mcmc, c0: Values) -> Rule:
    """Markov chain Monte Carlo, by a kernel K that leaves the density of q invariant.

    c1, tau1, rho1, w1 <- q(c0)    tau2 ~ K(tau1)
    c2, tau2, rho2, w2 <- target(q)(c0)[tau2]
    -----------------------------------------------------------------
    c2, tau2, rho2, w1 <- mcmc(kernel, q)(c0)
    """
    e1 = yield Premise(q.q, c0)
    p = target(q.q)
    conditions.check_density_known(e1, p, q)
    source, c0 = c0, c0.reindex(e1.ancestors)
    moved = engine.walk(q, p, c0, stop_gradient(e1.trace))
    tau2 = stop_gradient(e1.trace | moved.values)
    e2 = yield Premise(p, c0, tau2)
    e = replace(e2, trace=stop_gradient(e2.trace), values=stop_gradient(e2.values))
    return _concluded(f"mcmc({name_of(q.kernel)})", e1, e, _provenance(p, source), moved.acceptance)


def metropolis(engine: Engine, q: Metropolis, c0: Values) -> Rule:
    """Metropolis-Hastings, with a program f as its proposal.

    c1, tau1, rho1, w1 <- q(c0)    c', tau', rho' <- f(c1)    c2, tau2, rho2 <- target(q)(c0)[tau' over tau1]
    c'', tau'', rho'' <- f(c2)[tau1]        alpha = rho2 rho'' / (rho1 rho')
    -----------------------------------------------------------------------------------------------------
    c2, tau2, rho2, w1 with probability min(1, alpha), else c1, tau1, rho1, w1 <- metropolis(f, q)(c0)
    """
    e1 = yield Premise(q.q, c0)
    p = target(q.q)
    conditions.check_density_known(e1, p, q)
    source, c0 = c0, c0.reindex(e1.ancestors)
    origin = source_of(e1, source)
    returned = e1.facts.returned if origin and origin.f == p else None
    if not e1.fixed:
        rest = engine.at(p, c0, stop_gradient(e1.trace))
        values, trace, returned = *stop_gradient((rest.values, e1.trace)), rest.values
        e1 = replace(e1, values=values, trace=trace, log_density=rest.log_density)
    e1 = replace(e1, facts=replace(e1.facts, fixed=True, provenance=_provenance(p, source), returned=returned))
    if q.steps != 1:
        return _repeated(engine, q, e1, source)

    fresh = yield Premise(q.f, e1.values.as_arguments())
    conditions.check_proposal(q, fresh, e1.trace, sees_all=engine.sees_all_addresses)
    tau1, rho1, tau = e1.trace, e1.log_density, stop_gradient(fresh.trace)
    new, origin = tau1 | tau, e1.facts.provenance and e1.facts.provenance.without(tau)
    known = engine.known(p, source, replace(e1, trace=new, facts=replace(e1.facts, provenance=origin)))
    same = Domain() if known is None else dom(known.log_density)
    # Of a program that runs here nobody asks for the weight: a product of as many densities as there are.
    e2 = _unweighted(engine, p, c0, new, known) if isinstance(p, Primitive) else (yield Premise(p, c0, new))
    back = yield Premise(q.f, e2.values.as_arguments(), tau1)
    tau2, rho2 = e2.trace, e2.log_density
    # The step must lead back: what it keeps is the same from either side, and what it replaces can be sampled again.
    kept1, kept2 = dom(tau1) - dom(back.trace), dom(tau2) - dom(tau)
    lost = (kept1 - kept2, kept2 - kept1, dom(back.trace) - dom(tau1), dom(tau) - dom(tau2))
    one_way = reduce(either, (mask for domain in lost for mask in domain.values()), False)
    there = log_ratio(rho2, dom(rho2) - same, rho1, dom(rho1) - same, engine.log_one)
    log_alpha = there + log_ratio(back.log_density, dom(back.log_density), fresh.log_density, dom(tau), engine.log_one)
    impossible = either(one_way, log_alpha != log_alpha)
    log_alpha = stop_gradient(select(impossible, engine.log_one - np.inf, log_alpha))
    accepted = engine.accepts(log_alpha)
    stays = [a for a in tau1 if a not in tau and tau1.present(a) is True and tau2.present(a) is True]
    c2 = e2.values.chosen(accepted, e1.facts.returned or e1.values)
    e = replace(
        e2,
        values=_detached(c2, e1),
        trace=chosen(accepted, tau2, tau1, stays),
        log_density=chosen(accepted, rho2, rho1, same),
        facts=replace(e2.facts, returned=c2),
    )
    xp = log_alpha.__array_namespace__()
    acceptance = xp.exp(xp.minimum(log_alpha, 0.0))
    return _concluded(f"metropolis({describe(q.f)})", e1, e, e1.facts.provenance, acceptance)


def _unweighted(engine: Engine, f: Primitive, c0: Values, tau0: Trace, known: Known | None) -> Evaluation:
    c, tau, rho, score, _ = engine.primitive(f, c0, tau0, known)
    return Evaluation(c, tau, rho, engine.log_one, facts=Facts(score, fixed=f.detached))


def _detached(c2: Values, e1: Evaluation) -> Values:
    """Return values without gradients; what e1 returned too, it has without them already."""
    returned = e1.facts.returned
    pairs = zip(returned.leaves, e1.values.leaves, strict=True) if returned else ()
    known = {id(x): y for x, y in pairs if x is not y}
    return replace(c2, leaves=tuple(known[id(x)] if id(x) in known else stop_gradient(x) for x in c2.leaves))


def _repeated(engine: Engine, q: Metropolis, e1: Evaluation, c0: Values) -> Evaluation:
    """Return the evaluation after several steps, or none, which are one level."""

    def step(so_far: Program, _: Any) -> Program:
        return Metropolis(q.f, so_far)

    e = engine.loop(Scan(step, q.q, None, q.steps), e1, c0)
    rates = [level.acceptance for level in e.levels[len(e1.levels) :]]
    xp = e1.log_weight.__array_namespace__()
    rate = xp.mean(xp.asarray(rates)) if rates else 0.0
    return _concluded(f"metropolis({describe(q.f)})", e1, e, e1.facts.provenance, rate + engine.log_one)


def _provenance(p: Program, c0: Values) -> Provenance | None:
    return Provenance(p, c0, variables=True) if isinstance(p, Primitive) else None


def _concluded(
    label: str, e1: Evaluation, e2: Evaluation, provenance: Provenance | None, acceptance: Any
) -> Evaluation:
    """Return e1 with the particles where e2 has them: same weights, other places."""
    share = weights.normalize_in_any_order(stop_gradient(e1.log_weight))
    # Step sizes follow the rate, and particles follow these: on any number of devices they must be the same.
    rate = total_in_any_order(share * acceptance)
    jump = (share * _squared_distance(e1.trace, e2.trace, share)).sum()
    summary = replace(LevelSummary.of(label, e1.log_weight), acceptance=rate, jump=jump)
    facts = replace(
        e1.facts.detached(),
        score=e1.score,
        joint=e2.facts.joint or e1.facts.joint,
        provenance=provenance,
        returned=e2.facts.returned if provenance else None,
    )
    record = e1.record.with_level(summary)
    return Evaluation(e2.values, e2.trace, e2.log_density, e1.log_weight, record, facts)


def _squared_distance(tau1: Trace, tau2: Trace, like: Any) -> Any:
    """Return how far each particle went, over the variables that it has before and after."""
    total = 0.0 * like
    for a, both in (dom(tau1) & dom(tau2)).items():
        if tau1.values_at[a] is tau2.values_at[a]:
            continue
        if isinstance(like, np.ndarray):
            here = np.broadcast_to(both, like.shape)
            squares = [_squares(x, y, ()) if h else 0.0 for x, y, h in zip(tau1[a], tau2[a], here, strict=True)]
            total = total + np.array(squares)
        else:
            total = total + select(both, _squares(tau1[a], tau2[a], like.shape), 0.0)
    return total


def _squares(x: Any, y: Any, shape: tuple[int, ...]) -> Any:
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    return sum(((1.0 * b - 1.0 * a) ** 2).reshape(*shape, -1).sum(axis=-1) for a, b in _arrays(pairs))


def _arrays(pairs: Any) -> Any:
    return ((a, b) if isinstance(a, jax.Array) else (np.asarray(a), np.asarray(b)) for a, b in pairs)
