"""The side conditions of the rules, each with an error that names the addresses and a remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from steelyard.distributions.origins import KINDS
from steelyard.errors import (
    AddressError,
    ArgumentError,
    GrammarError,
    LoopStructureError,
    MeasureError,
    ObservedKernelError,
)
from steelyard.language.addresses import Previous, previous, variable
from steelyard.language.describe import describe
from steelyard.language.programs import (
    Carried,
    Extend,
    Move,
    Program,
    Propose,
    Rename,
    Scan,
    subprograms,
)
from steelyard.maps import Domain, Map, dom
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values

WRITTEN_OUT = "for x in xs: q = step(q, x)"


def overlap(domain: Domain) -> list[str]:
    """Return the addresses that some particle has, as far as can be known before anything runs."""
    return sorted(a for a, m in domain.items() if not isinstance(m, np.ndarray) or m.any())


def check_disjoint(first: Domain, second: Domain, q: Program) -> None:
    """Raise `AddressError` if two parts of q share an address."""
    if both_have := overlap(first & second):
        raise AddressError(
            f"{describe(q)}: both programs have the address {', '.join(map(repr, both_have))}. "
            f"Rename one of them, rename(f, {{{both_have[0]!r}: ...}}); or, if the second samples the variable anew, "
            f"use move(f, q) in place of compose and prev(f) in the extend."
        )


def check_moved(before: Domain, moved: Domain, q: Move, *, sees_all: bool) -> None:
    """Raise `AddressError` if q moves to a version that is there; or, where all
    addresses are known, moves a variable in some of its particles only.
    """
    for a in sorted(before.keys() & moved.keys()):
        if isinstance(a, Previous):
            raise AddressError(
                f"{describe(q)}: {describe(q.q2)} samples {a!r}, which is there already as the previous version of "
                f"{a.of!r}. Move {variable(a)!r} itself; prev(f) belongs in the extend of a target."
            )
        if sees_all and before[a] is True and moved[a] is not True:
            raise AddressError(
                f"{describe(q)}: {describe(q.q2)} samples {a!r} in some particles only, so that the old value would be "
                f"at {a!r} in some of them and at {previous(a)!r} in others. Sample {a!r} in all of them, or give "
                f"the kernel's variable an address of its own."
            )


def check_unobserved(rho: Domain, tau: Domain, q: Extend) -> None:
    """Raise `ObservedKernelError` if the kernel of q observes something: if dom(rho) is not dom(tau)."""
    if addresses := overlap(unsampled(rho, tau)):
        raise ObservedKernelError(
            f"{describe(q)}: the kernel {describe(q.f)} observes {', '.join(map(repr, addresses))}; an extension may "
            f"only sample, else the target would not be its marginal. Observe it in the target program instead."
        )


def unsampled(rho: Domain, tau: Domain) -> Domain:
    """Return what has a density and is no variable: what is observed."""
    # Where masks are not known yet, an address that is in both maps has the same mask in both.
    known = {a: m for a, m in tau.items() if not isinstance(m, bool | np.ndarray)}
    return rho - Domain({**tau, **dict.fromkeys(known, True)})


def check_measures(tau1: Map[Any], tau2: Map[Any], q: Propose, remark: Callable[[str, str, str], None]) -> None:
    """Compare what is known of the distributions of proposed values: the one condition that is the user's.

    Remark on each variable that the target has where the proposal never is, and raise `MeasureError` if a density would
    be divided by a mass, or a mass by a density.
    """
    for a in overlap(dom(tau1) & dom(tau2)):
        origin, own = tau1.origins.get(a), tau2.origins.get(a)
        if origin is None or own is None:
            continue
        if not origin.is_comparable(own):
            raise MeasureError(
                f"{describe(q)}: {a!r} is proposed from {origin.name}, which {KINDS[origin.kind]}, but in the target "
                f"it is from {own.name}, which {KINDS[own.kind]}. A density and a mass cannot be compared. Propose "
                f"{a!r} from a distribution of the target's kind; for the density at a point use log_density."
            )
        if origin.surely_misses(own):
            ours = "one point" if origin.kind == "point" else origin.region
            message = (
                f"{a!r} is proposed from {origin.name} ({ours}), but the target, {own.name} ({own.region}), goes "
                f"further. What is never proposed is missing in log Z and in expectations. Propose {a!r} from a "
                f"distribution that reaches all of it, or bound the target."
            )
            remark("support", describe(q), message)


def check_joint(joint: tuple[frozenset[str], ...], tau2: Domain, q: Propose) -> None:
    """Raise `AddressError` if the target has some of the variables that a bijection mixed, and not the others."""
    for group in joint:
        lacks = sorted(a for a in group if tau2.get(a, False) is not True)
        if lacks and (has := sorted(a for a in group if a in tau2)):
            raise AddressError(
                f"{describe(q)}: a bijection mixes {', '.join(map(repr, sorted(group)))}, so that they have a density "
                f"only together, but the target has {', '.join(map(repr, has))} and not, in every particle, "
                f"{', '.join(map(repr, lacks))}. Extend the target with a kernel that samples "
                f"{', '.join(map(repr, lacks))}, or transport each variable on its own."
            )


def check_rename(addresses: Domain, new: dict[str, str], q: Rename, *, sees_all: bool) -> None:
    """Raise `AddressError` if a new address is in use already or, where all are known, an old one does not exist."""
    for a, b in new.items():
        if sees_all and a not in addresses:
            raise AddressError(
                f"{describe(q)}: there is no address {a!r} to rename; the program has "
                f"{', '.join(map(repr, sorted(addresses))) or 'none'}."
            )
        if b in addresses and b not in new:
            raise AddressError(
                f"{describe(q)}: {a!r} becomes {b!r}, which the program has already. Rename {b!r} as well."
            )


def check_complete(e: Evaluation, q: Propose) -> None:
    """Raise `GrammarError` if some variables of the proposal were dropped, so that its density is not known."""
    if e.facts.partial:
        raise GrammarError(
            f"{describe(q)}: the proposal has a scan that keeps only the newest version of each variable, so that the "
            f"density to divide by is not known. Leave keep out of the scan, or propose for each of its steps."
        )


def check_kept(trace: Map[Any], q: Scan) -> None:
    """Raise `AddressError` if q is to keep a variable that some particle lacks."""
    for a in q.keep or ():
        if trace.present(a) is not True:
            everywhere = [b for b in trace if trace.present(b) is True and not isinstance(b, Previous)]
            raise AddressError(
                f"{describe(q)}: there is no variable {a!r} to keep in every particle; there are "
                f"{', '.join(map(repr, everywhere)) or 'none'}. Name variables that each step samples in all particles."
            )


def check_carried(q: Carried[Evaluation, Values], c0: Values, tau0: Map[Any] | None) -> Evaluation:
    """Return the evaluation of the program so far.

    Raise an error if it is to run on another value, or its density is asked for elsewhere.
    """
    if tau0 is not None:
        raise ArgumentError(
            "scan: an objective, or a detach around all of the step, needs the density of the program so far at held "
            "values, which only the step before could evaluate. Let the step end with a propose, and detach what "
            f"goes into it: move(detach(kernel), detach(q)). Or write the loop out: {WRITTEN_OUT}."
        )
    if q.evaluation is None or c0 is not q.arguments:
        raise LoopStructureError(
            "scan: the step runs the program so far, q, on another value than the scan was called with. A loop has run "
            "it already, once, on the arguments of the scan: let q come first, as in compose(f, q) or move(f, q), or "
            f"write the loop out: {WRITTEN_OUT}."
        )
    return q.evaluation


def check_step(built: Program, so_far: Carried, q: Scan) -> None:
    """Raise `LoopStructureError` unless a step of q uses the program so far, and uses it once."""
    used = [part for part in subprograms(built) if isinstance(part, Carried)]
    if len(used) == 1 and used[0] is so_far:
        return
    problem = "does not use the program so far, q" if not used else "uses the program so far, q, more than once"
    if any(part is not so_far for part in used):
        problem = "uses the program so far of another scan"
    raise LoopStructureError(
        f"{describe(q)}: the step {problem}, but a loop runs it once and hands its particles on. Let each step be made "
        f"of its q, once, or write the loop out: {WRITTEN_OUT}."
    )
