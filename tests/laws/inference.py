"""Random inference programs: the grammar's q.

Every program that is drawn is valid: domains that must be disjoint are, and proposals cover what they propose for.
Anything else goes: variables may be missing or superfluous, absent in some particles, observed here and sampled there.
"""

import itertools
from dataclasses import replace
from random import Random
from typing import Any, get_args

import numpy as np

import steelyard as sy
from steelyard.language.addresses import variable
from steelyard.language.programs import Detach, Kernel, Primitive, Program, Target
from steelyard.types import Method
from tests.laws.finite import Factor, Observe, Sample, Table, without_weights
from tests.laws.markov import HeatBath, Turn
from tests.laws.primitives import SIZES, Need, chance, extended, kernel, primitive, renamed, target, weight
from tests.laws.scans import Step, changed
from tests.laws.structure import domain, older, table_of

METHODS = get_args(Method)
# No fraction of 1, 2 or 3 particles that weights of zero make the effective sample size equal to.
THRESHOLDS = (None, 0.45, None, 0.83, 1.0)
LENGTHS = (0, 1, 1, 2, 2, 2, 3, 3)
RESAMPLINGS = tuple(itertools.product(METHODS, THRESHOLDS))


def inference(rng: Random, need: Need, depth: int) -> Program:
    """Return q, of about this depth."""
    if depth <= 0:
        return target(rng, need)
    forms = [_propose] * 4 + [_resample] * 4 + [_compose] * 3 + [_move] * 2 + [_rename]
    forms += [_metropolis] * 2 + [_jump] * 2 + [_mcmc, _transport]
    if depth >= 2:
        forms += [_step] * 4 + [_detach]
    if depth >= 3:
        forms += [_sweep] * 3 + [_again] + [_sweeps] * 3 + [_scan] * 5
    return rng.choice(forms)(rng, need, depth)


def _resample(rng: Random, need: Need, depth: int) -> Program:
    return _resampled(rng, inference(rng, need, depth - 1), need)


def _resampled(rng: Random, q: Program, need: Need) -> Program:
    """Return resample(q), of all particles or with each of them on an island of its own."""
    method, threshold = rng.choice(RESAMPLINGS)
    # Drawn aside, so that the rest of the program does not depend on it.
    aside = Random()
    aside.setstate(rng.getstate())
    if not chance(aside, 10):
        return sy.resample(q, method=method, threshold=threshold)
    ring = aside.choice((None, 0.5))
    return sy.resample(q, method=method, threshold=threshold, islands=need.particles, ring=ring)


def _rename(rng: Random, need: Need, depth: int) -> Program:
    return renamed(rng, inference(rng, need, depth - 1), need)


def _detach(rng: Random, need: Need, depth: int) -> Program:
    return sy.detach(inference(rng, need, depth - 1))


def _compose(rng: Random, need: Need, depth: int) -> Program:
    depths = rng.sample((depth - 1, rng.randint(0, min(depth - 1, 2))), 2)
    q1 = inference(rng, need, depths[0])
    return sy.compose(inference(rng, apart_from(q1, need), depths[1]), q1)


def _step(rng: Random, need: Need, depth: int) -> Program:
    """Return a step of sequential Monte Carlo, which resamples before, after or while it extends the particles.

    What q1 left, and the arguments of a propose after it, must follow the ancestors.
    """
    when = rng.choice(("before", "while", "after"))
    q1 = inference(rng, need, depth - 2 if when == "before" else rng.randint(0, 1))
    apart = apart_from(q1, need)
    match when:
        case "before":
            return sy.compose(inference(rng, apart, rng.randint(0, 1)), _resampled(rng, q1, need))
        case "after":
            if chance(rng, 60):
                return sy.compose(_resampled(rng, inference(rng, apart, depth - 2), need), q1)
            q2 = kernel(rng, apart)
            again = _resampled(rng, q2, need)
            return sy.compose(sy.detach(again) if chance(rng, 40) else _scan_of(rng, again, q2, lengths=(1, 1, 2)), q1)
        case _:
            p = target(rng, apart, hidden=True)
            return sy.compose(sy.propose(p, _resampled(rng, _proposal_for(rng, p, need, depth - 3), need)), q1)


def apart_from(q: Program, need: Need) -> Need:
    """Return the need for a program that is composed with q."""
    return replace(need, avoid=need.avoid | {variable(a) for a in domain(q).all})


def _proposal_for(rng: Random, p: Program, need: Need, depth: int) -> Program:
    """Return a program that covers p. Its variables are not seen outside, so that it may have any."""
    wider = need.wider + 1 if chance(rng, 12) else need.wider
    need = replace(need, positive=True, wider=wider, wanted=tuple(domain(p).sizes), avoid=frozenset())
    if depth >= 1 and chance(rng, 15):
        return rng.choice((_scan, _detach))(rng, need, depth)
    return inference(rng, need, depth)


def _propose(rng: Random, need: Need, depth: int) -> Program:
    p = target(rng, need, hidden=True)
    return sy.propose(p, _proposal_for(rng, p, need, depth - 1))


def _again(rng: Random, need: Need, depth: int) -> Program:
    """Return propose(p, resample(propose(p, q))), where p may be zero: so is then what proposes for it."""
    p = kernel(rng, need)
    q = sy.propose(p, _proposal_for(rng, p, need, depth - 3))
    return sy.propose(p, _resampled(rng, q, need))


def _move(rng: Random, need: Need, depth: int) -> Program:
    q = inference(rng, need, depth - 1)
    return sy.move(_mover(rng, q, need), q)


def _mover(rng: Random, q: Program, need: Need, *, observes: bool = True) -> Kernel:
    """Return a kernel that samples variables of q again, and may observe what q samples or observes.

    It does so in every particle. Else the address of an old value, the newest or the previous version, would depend on
    what is sampled after it, and that is no address: a propose around such a move is not proper.
    """
    known, names = domain(q), frozenset(map(variable, domain(q).all))
    need = replace(need, wanted=tuple(known.sizes))
    if observes and names and chance(rng, 20):
        return Primitive(Table((weight(rng, rng.choice(sorted(names)), need),)))
    f = kernel(rng, need, observes=observes, observable=names, masks=chance(rng, 50))
    has = domain(f)
    if has.sometimes & names or has.all & older(known, has).all:
        return primitive(rng, need, observes=False, masks=False)
    return f


def _metropolis(rng: Random, need: Need, depth: int) -> Program:
    return _walked(rng, inference(rng, need, depth - 1), need)


def _walked(rng: Random, q: Program, need: Need, *, turns: bool = True) -> Program:
    """Return metropolis(f, q), where f samples some of the variables of q again, in some particles or in all."""
    names = _variables(q)
    if not names:
        return q
    need = replace(need, positive=chance(rng, 70), wanted=tuple(names), avoid=frozenset(SIZES) - set(names))
    f = primitive(rng, need, observes=False, two=chance(rng, 30))
    if turns and chance(rng, 20):
        q = _turned(rng, q)
    return sy.metropolis(f, q, steps=rng.choice((1, 1, 1, 2, 0)))


def _jump(rng: Random, need: Need, depth: int) -> Program:
    """Return metropolis(f, q), where it may depend on what f samples which variables there are."""
    q = primitive(rng, need, two=True)
    for _ in range(8):
        if domain(q).sometimes & domain(q).sizes.keys():
            break
        q = primitive(rng, need, two=True)
    return _walked(rng, sy.resample(q) if chance(rng, 20) else q, need)


def _variables(q: Program) -> list[str]:
    """Return the variables of q that a program can sample by their name."""
    return sorted(a for a in domain(q).sizes if a == variable(a))


def _mcmc(rng: Random, need: Need, depth: int) -> Program:
    """Return mcmc(kernel, q), where the kernel draws one variable from its conditional distribution."""
    q = inference(rng, need, depth - 1)
    everywhere = sorted(set(domain(q).sizes) - domain(q).sometimes)
    if not everywhere:
        return q
    address = rng.choice(everywhere)
    return sy.mcmc(HeatBath(address, domain(q).sizes[address]), q, steps=rng.choice((1, 1, 2)), only=[address])


def _transport(rng: Random, need: Need, depth: int) -> Program:
    return _turned(rng, inference(rng, need, depth - 1))


def _turned(rng: Random, q: Program) -> Program:
    """Return transport(bijection, q) of one variable."""
    everywhere = sorted(set(domain(q).sizes) - domain(q).sometimes)
    if not everywhere:
        return q
    address = rng.choice(everywhere)
    return sy.transport(Turn(domain(q).sizes[address], rng.choice((1, 1, 2))), q, only=[address])


def _sweep(rng: Random, need: Need, depth: int) -> Program:
    """Return propose(extend(p, prev(f)), move(f, resample(q))), q for p or for something like it, with one f or two."""
    p = kernel(rng, replace(need, positive=True))
    inner = p if chance(rng, 60) else kernel(rng, replace(need, positive=True, avoid=frozenset()))
    q: Program = sy.propose(inner, _proposal_for(rng, inner, need, depth - 4))
    if chance(rng, 85):
        q = _resampled(rng, q, need)
    return _updated(rng, p, q, need, kernels=1 + chance(rng, 25))


def _updated(rng: Random, p: Kernel, q: Program, need: Need, *, kernels: int = 1) -> Program:
    """Return propose(extend(p, prev(f)), move(f, q)), where f may observe and weigh."""
    whole: Target = p
    for _ in range(kernels):
        f = _mover(rng, q, Need(positive=True, wider=need.wider, thrifty=need.thrifty), observes=chance(rng, 60))
        reverse = _reverse(f) if chance(rng, 80) else None
        whole = extended(rng, whole, replace(need, positive=True, avoid=frozenset()), reverse)
        q = sy.move(f, q)
    return sy.propose(whole, q)


def _reverse(f: Kernel) -> Kernel | None:
    """Return the kernel without what it observes, which an extend may not have."""
    if not domain(f).observed:
        return f
    return Primitive(without_weights(table_of(f))) if isinstance(f, Primitive) else None


def _target_of_sweeps(rng: Random, need: Need) -> Primitive:
    """Return a target whose presence of variables, if it is not fixed, depends on other variables.

    A presence that depends on the argument alone is known where a scan begins, and not inside of its steps.
    """
    need = replace(need, positive=True, avoid=need.avoid | {"one"})
    two = chance(rng, 75)
    p = primitive(rng, need, masks=two and chance(rng, 40), two=two)
    first = next(iter(table_of(p).statements), None)
    return p if isinstance(first, Sample) else primitive(rng, need, masks=False, two=two)


def _sweeps(rng: Random, need: Need, depth: int) -> Program:
    """Return two or three sweeps for the same target, each a propose: this is where densities are reused."""
    p = _target_of_sweeps(rng, need)
    q: Program = sy.propose(p, _proposal_for(rng, p, need, 0))
    for _ in range(rng.randint(1, 3)):
        q = _updated(rng, p, _resampled(rng, q, need) if chance(rng, 30) else q, need)
        q = sy.detach(q) if chance(rng, 10) else q
    return q


def repetition(rng: Random, need: Need) -> Program:
    """Return a program that repeats itself, in sweeps or in a scan."""
    return rng.choice((_sweeps, _sweeps, _scan))(rng, need, 3)


def _scan(rng: Random, need: Need, depth: int) -> Program:
    """Return a scan whose steps are sweeps, resamplings or scans, which begins with their target or a proposal for it."""
    p = _target_of_sweeps(rng, need)
    start = sy.propose(p, _proposal_for(rng, p, need, 0)) if chance(rng, 75) else replace(p)
    return _scanned(rng, p, start, need, nested=chance(rng, 25))


def _scanned(rng: Random, p: Primitive, start: Program, need: Need, *, nested: bool, detaches: bool = True) -> Program:
    template: Program = start
    if nested or chance(rng, 50):
        template = _resampled(rng, template, need)
    if nested:
        return _scan_of(rng, _scanned(rng, p, template, need, nested=False, detaches=False), start)
    if template is start or chance(rng, 85):
        # What comes before a step can be detached where the step proposes from it, and not by a scan in the step.
        # Not sy.detach, which would make another primitive program of the hole.
        template = Detach(template) if detaches and chance(rng, 35) else template
        for _ in range(1 + chance(rng, 30)):
            template = _updated(rng, p, template, need)
    if chance(rng, 55):
        # A transport would make another density of what came before, in each step another one.
        template = _walked(rng, template, need, turns=False)
    return _scan_of(rng, template, start)


def _scan_of(
    rng: Random, template: Program, start: Program, *, lengths: tuple[int, ...] = LENGTHS, **options: Any
) -> Program:
    def by_step(table: Table) -> Table:
        return replace(table, shift=rng.randint(0, 1)) if chance(rng, 50) else table

    length = rng.choice(lengths)
    step = Step(changed(template, by_step, {id(start): start}), start)
    return sy.scan(step, start, np.array([rng.randint(0, 2) for _ in range(length)], int), **options)


def filtering(rng: Random, need: Need) -> Program:
    """Return a filter: scan(step, q, xs, keep=[...]), whose step is move(f, resample(q))."""
    start = primitive(rng, need, masks=False, two=chance(rng, 50))
    table = table_of(start)
    again = primitive(rng, replace(need, wanted=tuple(domain(start).sizes)), observes=False, masks=False)
    has = domain(start)
    samples = [s for s in table_of(again).statements if isinstance(s, Sample) and s.address in has.sizes]
    weighs = [s for s in table.statements if isinstance(s, Observe | Factor)]
    f = Primitive(Table((*samples, *weighs)))
    start = Primitive(replace(table, returns="state"))
    q = _scan_of(rng, sy.move(f, _resampled(rng, start, need)), start, keep=sorted(has.sizes))
    return _resampled(rng, q, need) if chance(rng, 20) else q
