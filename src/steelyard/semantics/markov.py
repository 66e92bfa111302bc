"""Markov kernels: rules that move particles and leave the density that they are from, and so their weights, alone."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.language.coordinates import Position
from steelyard.language.describe import describe
from steelyard.language.programs import Mcmc, Metropolis, Primitive, Program, Scan, name_of
from steelyard.language.rewrite import target
from steelyard.maps import Map, chosen, dom, either, log_ratio, select
from steelyard.particles import weights
from steelyard.semantics import conditions
from steelyard.semantics.dependencies import Provenance, source_of
from steelyard.semantics.engine import Engine, Moved, Trace
from steelyard.semantics.evaluation import Evaluation, LevelSummary
from steelyard.semantics.positions import placed
from steelyard.semantics.rules import Rule
from steelyard.semantics.values import Values
from steelyard.types import is_traced, stop_gradient

# The evaluation of a program for one particle, at a trace.
At = Callable[[Trace], Evaluation]


def mcmc(engine: Engine, q: Mcmc, c0: Values) -> Rule:
    """Markov chain Monte Carlo, by a kernel K that leaves the density of q invariant.

    c1, tau1, rho1, w1 <- q(c0)    tau2 ~ K(tau1)
    c2, tau2, rho2, w2 <- target(q)(c0)[tau2]
    -----------------------------------------------------------------
    c2, tau2, rho2, w1 <- mcmc(kernel, q)(c0)
    """
    e1 = yield q.q, c0, None
    p = target(q.q)
    conditions.check_density_known(e1, p, q)
    source, c0 = c0, c0 if e1.ancestors is None else c0.reindex(e1.ancestors)
    walk = partial(_walk, q, engine.sees_all_addresses)
    moved = engine.each(walk, p, c0, stop_gradient(e1.trace))
    tau2 = stop_gradient(e1.trace | moved.values)
    e2 = yield p, c0, tau2
    e = replace(e2, trace=stop_gradient(e2.trace), values=stop_gradient(e2.values))
    return _concluded(f"mcmc({name_of(q.kernel)})", e1, e, _provenance(p, source), moved.acceptance)


def metropolis(engine: Engine, q: Metropolis, c0: Values) -> Rule:
    """Metropolis-Hastings, with a program f as its proposal.

    c1, tau1, rho1, w1 <- q(c0)    c', tau', rho' <- f(c1)    c2, tau2, rho2 <- target(q)(c0)[tau' over tau1]
    c'', tau'', rho'' <- f(c2)[tau1]        alpha = rho2 rho'' / (rho1 rho')
    -----------------------------------------------------------------------------------------------------
    c2, tau2, rho2, w1 with probability min(1, alpha), else c1, tau1, rho1, w1 <- metropolis(f, q)(c0)
    """
    e1 = yield q.q, c0, None
    p = target(q.q)
    conditions.check_density_known(e1, p, q)
    source, c0 = c0, c0 if e1.ancestors is None else c0.reindex(e1.ancestors)
    known = source_of(e1, source)
    returned = e1.returned if known and known.f == p else None
    if not e1.fixed:
        rest = engine.at(p, c0, stop_gradient(e1.trace))
        values, trace, returned = *stop_gradient((rest.values, e1.trace)), rest.values
        e1 = replace(e1, values=values, trace=trace, log_density=rest.log_density, fixed=True)
    e1 = replace(e1, provenance=_provenance(p, source), returned=returned)
    if q.steps != 1:
        return _repeated(engine, q, e1, source)

    fresh = yield q.f, e1.values.as_arguments(), None
    conditions.check_proposal(q, fresh, e1.trace, known=engine.sees_all_addresses)
    tau1, rho1, tau = e1.trace, e1.log_density, stop_gradient(fresh.trace)
    new, known = tau1 | tau, e1.provenance and e1.provenance.without(tau)
    with engine.reusing(p, source, replace(e1, trace=new, provenance=known)) as same:
        # Of a program that runs here nobody asks for the weight: a product of as many densities as there are.
        e2 = _unweighted(engine, p, c0, new) if isinstance(p, Primitive) else (yield p, c0, new)
    back = yield q.f, e2.values.as_arguments(), tau1
    tau2, rho2 = e2.trace, e2.log_density
    # The step must lead back: what it keeps is the same from either side, and what it replaces can be sampled again.
    kept1, kept2 = dom(tau1) - dom(back.trace), dom(tau2) - dom(tau)
    lost = (kept1 - kept2, kept2 - kept1, dom(back.trace) - dom(tau1), dom(tau) - dom(tau2))
    one_way = reduce(either, (mask for domain in lost for mask in domain.values()), False)
    there = log_ratio(rho2, dom(rho2) - same, rho1, dom(rho1) - same, engine.one)
    log_alpha = there + log_ratio(back.log_density, dom(back.log_density), fresh.log_density, dom(tau), engine.one)
    impossible = either(one_way, log_alpha != log_alpha)
    log_alpha = stop_gradient(select(impossible, engine.one - np.inf, log_alpha))
    accepted = engine.accepts(log_alpha)
    stays = [a for a in tau1 if a not in tau and tau1.present(a) is True and tau2.present(a) is True]
    c2 = e2.values.chosen(accepted, e1.returned or e1.values)
    e = replace(
        e2,
        values=_detached(c2, e1),
        trace=chosen(accepted, tau2, tau1, stays),
        log_density=chosen(accepted, rho2, rho1, same),
        returned=c2,
    )
    xp = log_alpha.__array_namespace__()
    acceptance = xp.exp(xp.minimum(log_alpha, 0.0))
    return _concluded(f"metropolis({describe(q.f)})", e1, e, e1.provenance, acceptance)


def _unweighted(engine: Engine, f: Primitive, c0: Values, tau0: Trace) -> Evaluation:
    c, tau, rho, score = engine.primitive(f, c0, tau0)
    return Evaluation(c, tau, rho, engine.one, score=score, fixed=f.detached)


def _detached(c2: Values, e1: Evaluation) -> Values:
    """Return values without gradients; what e1 returned too, it has without them already."""
    pairs = zip(e1.returned.leaves, e1.values.leaves, strict=True) if e1.returned else ()
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
    return _concluded(f"metropolis({describe(q.f)})", e1, replace(e, ancestors=None), e1.provenance, rate + engine.one)


def _provenance(p: Program, c0: Values) -> Provenance | None:
    return Provenance(p, c0, variables=True) if isinstance(p, Primitive) else None


def _concluded(
    label: str, e1: Evaluation, e2: Evaluation, provenance: Provenance | None, acceptance: Any
) -> Evaluation:
    """Return e1 with the particles where e2 has them: same weights, other places."""
    share = weights.normalize(stop_gradient(e1.log_weight))
    rate, jump = (share * acceptance).sum(), (share * _squared_distance(e1.trace, e2.trace, share)).sum()
    summary = replace(LevelSummary.of(label, e1.log_weight), acceptance=rate, jump=jump)
    return replace(
        e1,
        values=e2.values,
        trace=e2.trace,
        log_density=e2.log_density,
        levels=(*e1.levels, summary),
        kernel=None,
        marginal=None,
        at_rest=None,
        fixed=True,
        joint=e2.joint or e1.joint,
        provenance=provenance,
        returned=e2.returned if provenance else None,
    )


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


def _walk(q: Mcmc, known: bool, at: At, keys: Callable[[Any], Any], tau: Trace) -> Moved:
    """Move one particle, in unconstrained coordinates."""

    def named(values: dict[str, Any]) -> Trace:
        return Map({**{a: tau[a] for a in tau}, **values}, tau.masks)

    start = at(placed(tau, q.only)).trace
    position = {a: start[a].coordinates for a in start if isinstance(start[a], Position)}
    conditions.check_moved_by(q, tau, position, known=known)
    if not position or q.steps == 0:
        return Moved(Map(), jnp.zeros(()))

    # Relative to where it starts, address by address: large numbers that stay the same must not drown the others.
    first = at(named({a: Position(x) for a, x in position.items()})).log_density
    offsets = {a: jnp.where(jnp.isfinite(x), x, 0.0) for a, x in first.items()}

    def log_density(position: dict[str, Any]) -> Any:
        e = at(named({a: Position(x) for a, x in position.items()}))
        here = dict(e.log_density.items())
        total = sum((here.get(a, 0.0) - offsets.get(a, 0.0) for a in {**offsets, **here}), start=jnp.zeros(()))
        for domain in (dom(e.trace) - dom(tau), dom(tau) - dom(e.trace)):
            for mask in domain.values():
                total = select(mask, -jnp.inf, total)
        # A density that is no number cannot be compared: nothing moves there.
        return jnp.where(total < jnp.inf, total, -jnp.inf)

    init, step = conditions.check_kernel(q, q.kernel(log_density))
    state = init(position, keys(0)) if _takes_key(init) else init(position)
    conditions.check_state(q, state, position)

    def one(state: Any, number: Any) -> tuple[Any, Any]:
        after, info = step(keys(number), state)
        return after, _acceptance(info, state.position, after.position)

    if is_traced(jax.tree.leaves(position)[0]):
        state, rates = jax.lax.scan(one, state, jnp.arange(1, q.steps + 1))
    else:
        rates = []
        for number in range(1, q.steps + 1):
            state, rate = one(state, number)
            rates.append(rate)
    # Who did not move stays where it is to the last bit. There is no way to a place that is no number.
    moved = _differs(position, state.position) & _is_finite(state.position)
    new = at(named({a: Position(x) for a, x in state.position.items()})).trace
    return Moved(Map({a: select(moved, new[a], tau[a]) for a in position}), jnp.mean(jnp.asarray(rates)))


def _takes_key(init: Callable[..., Any]) -> bool:
    """Tell whether a kernel begins at random: `init(position, key)`."""
    try:
        parameters = inspect.signature(init).parameters.values()
    except ValueError:
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([x for x in parameters if x.kind in positional]) > 1


def _acceptance(info: Any, before: Any, after: Any) -> Any:
    """Return the acceptance probability that a kernel tells; or else whether it moved."""
    for name in ("acceptance_rate", "is_accepted"):
        if (rate := getattr(info, name, None)) is not None:
            return jnp.asarray(rate, float)
    return jnp.asarray(_differs(before, after), float)


def _differs(before: Any, after: Any) -> Any:
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return reduce(jnp.logical_or, (jnp.any(x != y) for x, y in pairs), jnp.asarray(False))


def _is_finite(position: Any) -> Any:
    return reduce(jnp.logical_and, (jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(position)))
