"""The rules of evaluation, one function each, in the letters of the paper.

A rule is a generator. It yields its premises, `Premise(q, c0, tau0)` for the judgement `c, tau, rho, w <- q(c0)[tau0]`,
is sent the `Evaluation` of each, and returns its conclusion; tau0 is None where nothing is substituted.
(`judgement.py` runs them, and has the table of all rules.) Everything is in logs, so that products are sums. dom(.)
gives masks, one per address, and the set expressions of the paper are mask algebra: they hold for each particle.

Two things that the paper leaves open are settled here. A program that resamples tells its ancestors, and whatever was
computed for its particles before (the arguments of a propose, the first part of a compose) is reindexed with them,
because a particle must stay one particle. And a proposal of density zero under its own program has weight zero.
"""

from dataclasses import replace

from steelyard.ancestors import composed, take
from steelyard.language.addresses import Previous, previous
from steelyard.language.programs import (
    Adapt,
    Carried,
    Compose,
    Detach,
    Extend,
    Move,
    Prev,
    Primitive,
    Propose,
    Rename,
    Resample,
    Scan,
)
from steelyard.language.rewrite import marginal, target
from steelyard.maps import Domain, Map, dom, log_product, log_ratio
from steelyard.particles import resampling, weights
from steelyard.particles.islands import ancestors_within, average_weights, chosen, gone_on, in_islands
from steelyard.semantics import conditions
from steelyard.semantics.engine import Engine, Known, Premise, Rule, Trace
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.facts import Facts, Provenance, total_score
from steelyard.semantics.levels import compared, detached_log_density, values_are_fixed
from steelyard.semantics.record import LevelSummary, Record
from steelyard.semantics.values import Values
from steelyard.semantics.versions import is_as_expected, older_by, under, younger
from steelyard.types import stop_gradient

# Weights that are equal up to rounding have all of the effective sample size.
ROUNDING = 1e-5


def primitive(engine: Engine, f: Primitive, c0: Values, tau0: Trace | None, known: Known | None) -> Rule:
    """Likelihood weighting (section 2.2).

    c, tau, rho <- f(c0)[tau0]
    w = product of rho over dom(rho) - (dom(tau) - dom(tau0))
    ----------------------------------------------------------
    c, tau, rho, w <- f(c0)[tau0]
    """
    yield from ()
    tau0 = Map() if tau0 is None else tau0
    c, tau, rho, score, terms = engine.primitive(f, c0, tau0, known)
    w = log_product(rho, dom(rho) - (dom(tau) - dom(tau0)), engine.log_one)
    return Evaluation(c, tau, rho, w, Record(pointwise=terms), Facts(score, fixed=f.detached))


def extend(engine: Engine, q: Extend, c0: Values, tau0: Trace | None, known: Known | None) -> Rule:
    """Extend (section 3.4; appendix C under substitution, where the value is f's here too).

    c1, tau1, rho1, w1 <- p(c0)    c2, tau2, rho2, w2 <- f(c1)
    dom(rho1) & dom(rho2) = {}     dom(rho2) = dom(tau2)
    -----------------------------------------------------------------
    c2, tau1 + tau2, rho1 + rho2, w1 w2 <- extend(p, f)(c0)
    """
    e1 = yield Premise(q.p, c0, tau0, known)
    e2 = yield Premise(q.f, e1.values.as_arguments(), tau0)
    conditions.check_disjoint(dom(e1.log_density), dom(e2.log_density), q)
    conditions.check_unobserved(dom(e2.log_density), dom(e2.trace), q)
    return Evaluation(
        e2.values,
        e1.trace | e2.trace,
        e1.log_density | e2.log_density,
        e1.log_weight + e2.log_weight,
        e1.record,
        Facts(total_score(e1.score, e2.score), marginal=e1.marginal),
    )


def compose(engine: Engine, q: Compose, c0: Values, tau0: Trace | None) -> Rule:
    """Compose (section 3.4).

    c1, tau1, rho1, w1 <- q1(c0)    c2, tau2, rho2, w2 <- q2(c1)
    dom(rho1) & dom(rho2) = {}
    -----------------------------------------------------------------
    c2, tau2 + tau1, rho2 + rho1, w2 w1 <- compose(q2, q1)(c0)
    """
    e1 = yield Premise(q.q1, c0, tau0)
    e2 = yield Premise(q.q2, e1.as_arguments(c0), tau0)
    e1 = e1.reindex(e2.ancestors)
    conditions.check_disjoint(dom(e1.log_density), dom(e2.log_density), q)
    return e1.then(e2)


def propose(engine: Engine, q: Propose, c0: Values) -> Rule:
    """Propose (section 3.4).

    c1, tau1, rho1, w1 <- q(c0)    c2, tau2, rho2, w2 <- p(c0)[tau1]
    c3, tau3, rho3, w3 <- marginal(p)(c0)[tau2]
    u1 = product of rho1 over dom(rho1) - (dom(tau1) - dom(tau2))
    -----------------------------------------------------------------
    c3, tau3, rho3, w2 w1 / u1 <- propose(p, q)(c0)

    Densities that are known to be the same in rho1 and rho2 are passed to the second premise, and left out of both w2
    and u1. The second premise has the third among its own.
    """
    e1 = yield Premise(q.q, c0)
    conditions.check_complete(e1, q)
    known = engine.known(marginal(q.p), c0, e1)
    source, c0 = c0, c0.reindex(e1.ancestors)
    e2 = yield Premise(q.p, c0, e1.trace, known)
    e3 = e2.marginal
    conditions.check_measures(e1.trace, e2.trace, q, engine.remark)
    conditions.check_joint(e1.facts.joint, dom(e2.trace), q)
    rho1, tau1, rho2, tau2 = e1.log_density, e1.trace, e2.log_density, e2.trace
    same = Domain() if known is None else dom(known.log_density)
    in_w2 = dom(rho2) - (dom(tau2) - dom(tau1)) - same
    in_u1 = dom(rho1) - (dom(tau1) - dom(tau2)) - same
    v = log_ratio(rho2, in_w2, rho1, in_u1, engine.log_one)
    w = v + e1.log_weight

    summary = compared(engine, q, c0, e1, e2, v)
    facts = Facts(
        total_score(e1.score, e2.score),
        fixed=e1.fixed and not dom(tau2) - dom(tau1),
        provenance=Provenance(f, source) if isinstance(f := marginal(q.p), Primitive) else None,
        returned=e3.values,
    )
    return Evaluation(e3.values, e3.trace, e3.log_density, w, e1.record.with_level(summary), facts)


def resample(engine: Engine, q: Resample, c0: Values) -> Rule:
    """Resample (section 3.4), where the effective sample size is below the threshold, if there is one.

    c1, tau1, rho1, w1 <- q(c0)    a ~ resample(w1)    w2 = mean(w1)
    -----------------------------------------------------------------
    c1[a], tau1[a], rho1[a], w2 <- resample(q)(c0)
    """
    if q.islands is not None:
        return (yield from resample_islands(engine, q, q.islands, c0))
    e1 = yield Premise(q.q, c0)
    w1, size = e1.log_weight, e1.particles
    noise, enough = engine.noise(q.method, w1), False
    if q.threshold is not None:
        enough = weights.effective_sample_size_in_any_order(w1) >= q.threshold * size * (1 - ROUNDING)
    a = resampling.ancestors(w1, q.method, noise, size, stay=enough)
    w2 = engine.log_one + weights.log_mean_in_any_order(w1)
    w2 = w2 if q.threshold is None else w1.__array_namespace__().where(enough, w1, w2)
    e = e1.reindex(a)
    resampled = 1 if q.threshold is None else w1.__array_namespace__().where(enough, 0, 1)
    level = replace(LevelSummary.of("resample", w1, ancestors=a), resampled=resampled, method=q.method)
    return replace(e, log_weight=w2, record=e.record.with_level(level))


def resample_islands(engine: Engine, q: Resample, islands: int, c0: Values) -> Rule:
    """Resample within islands i, where their effective number is not below the threshold, if there is one.

    With a ring, some of the particles of each island, and their weights, then change places with those of the next.

    c1, tau1, rho1, w1 <- q(c0)    a_i ~ resample(w1_i)    w2_i = mean(w1_i)
    -------------------------------------------------------------------------
    c1[a], tau1[a], rho1[a], w2 <- resample(q, islands=n)(c0)
    """
    e1 = yield Premise(q.q, c0)
    w1, size = e1.log_weight, e1.particles
    rows = in_islands(w1, islands)
    a = ancestors_within(rows, q.method, engine.noises(q.method, rows))
    averages = average_weights(rows)
    w2 = engine.log_one + averages.repeat(size // islands)
    if q.threshold is not None:
        noise = engine.noise(q.method, w1)
        enough = weights.effective_sample_size_in_any_order(averages) >= q.threshold * islands * (1 - ROUNDING)
        a = chosen(enough, a, resampling.ancestors(w1, q.method, noise, size, stay=enough))
        w2 = w1.__array_namespace__().where(enough, w2, engine.log_one + weights.log_mean_in_any_order(w1))
    if q.ring is not None:
        onward = gone_on(size, islands, q.ring)
        a, w2 = composed(a, onward), take(w2, onward)
    e = e1.reindex(a)
    level = replace(LevelSummary.of("resample", w1, ancestors=a), resampled=1, method=f"{q.method} within islands")
    return replace(e, log_weight=w2, record=e.record.with_level(level))


def detach(engine: Engine, q: Detach, c0: Values) -> Rule:
    """Detach: the same samples and weights, from which no gradient flows.

    c1, tau1, rho1, w1 <- q(c0)    c2, tau2, rho2, w2 <- target(q)(c0)[stop(tau1)]
    -------------------------------------------------------------------------------
    stop(c1), stop(tau1), rho2, stop(w1) <- detach(q)(c0)
    """
    if isinstance(q.q, Resample):
        # The same, but densities are taken from ancestors, not evaluated once more.
        return (yield from resample(engine, replace(q.q, q=Detach(q.q.q)), c0))
    e1 = yield Premise(q.q, c0)
    c0 = c0.reindex(e1.ancestors)
    rho2 = e1.facts.detached_log_density
    if rho2 is None:
        rho2 = detached_log_density(engine, target(q.q), e1, c0)
    c1, tau1, w1 = stop_gradient((e1.values, e1.trace, e1.log_weight))
    returned = e1.facts.returned if values_are_fixed(e1, c0) else None
    return Evaluation(c1, tau1, rho2, w1, e1.record, replace(e1.facts.detached(), returned=returned))


def rename(engine: Engine, q: Rename, c0: Values, tau0: Trace | None) -> Rule:
    """Rename: q under other addresses.

    c, tau, rho, w <- q(c0)[tau0 under old addresses]
    --------------------------------------------------------
    c, new(tau), new(rho), w <- rename(q, new)(c0)[tau0]
    """
    new = q.new
    old = {b: a for a, b in new.items()}
    inner = {a: old.get(a, a) for a in tau0 or () if a in old or a not in new}
    e = yield Premise(q.q, c0, tau0 if tau0 is None else under(tau0, inner))
    conditions.check_rename(dom(e.log_density), new, q, sees_all=engine.sees_all_addresses)
    return e.rename(lambda a: new.get(a, a))


def prev(engine: Engine, q: Prev, c0: Values, tau0: Trace | None) -> Rule:
    """Prev: f with every address renamed to its previous version."""
    inner: dict[str, str] = {a: a.of for a in tau0 or () if isinstance(a, Previous)}
    e = yield Premise(q.f, c0, tau0 if tau0 is None else under(tau0, inner))
    return e.rename(previous)


def move(engine: Engine, q: Move, c0: Values, tau0: Trace | None) -> Rule:
    """Move: compose, where what q2 samples or observes again replaces what was there.

        c1, tau1, rho1, w1 <- q1(c0)    c2, tau2, rho2, w2 <- q2(c1)
        -----------------------------------------------------------------------
        c2, tau2 + older(tau1), rho2 + older(rho1), w2 w1 <- move(q2, q1)(c0)

    where `older` renames every version of a variable in dom(rho2) to its previous version.
    """
    start, moved, tries = engine.mark(), engine.kernels.expected(q.q2), len(tau0 or ())
    # Which of the values in tau0 are q1's depends on which variables q2 samples.
    while True:
        before = moved
        e1 = yield Premise(q.q1, c0, None if tau0 is None else younger(tau0, before))
        e2 = yield Premise(q.q2, e1.as_arguments(c0), tau0)
        moved = dom(e2.log_density)
        if tries == 0 or is_as_expected(moved, before):
            break
        # Else the keys of what follows would depend on how often this is tried.
        engine.rewind(start)
        tries -= 1
    engine.kernels.remember(q.q2, moved)
    conditions.check_moved(dom(e1.log_density), moved, q, sees_all=engine.sees_all_addresses)
    return older_by(e1.reindex(e2.ancestors), moved).then(e2)


def scan(engine: Engine, q: Scan, c0: Values) -> Rule:
    """Scan: q, and then one step after the other, each from the evaluation of those before it."""
    e0 = yield Premise(q.q, c0)
    return engine.loop(q, e0, c0)


def adapt(engine: Engine, q: Adapt, c0: Values) -> Rule:
    """Adapt: a scan over what is chosen from the particles on the way."""
    e0 = yield Premise(q.q, c0)
    return engine.search(q, e0, c0)


def carried(engine: Engine, q: Carried[Evaluation, Values], c0: Values, tau0: Trace | None) -> Rule:
    """Carried: inside a step of a scan the program so far has its evaluation already."""
    yield from ()
    return conditions.check_carried(q, c0, tau0)
