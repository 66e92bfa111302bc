"""What a careful colleague would say about a program before it runs."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from difflib import get_close_matches
from typing import Any, NamedTuple

import jax

from steelyard.compiler.draws import draw as draw_one
from steelyard.compiler.equations import reach
from steelyard.engines.abstract import abstractly
from steelyard.engines.vectorized import Vectorized
from steelyard.language.describe import describe
from steelyard.language.programs import Primitive, Program, Programmable, Propose, program
from steelyard.language.state import Run, run
from steelyard.maps import Map
from steelyard.output import hypertext, printable
from steelyard.semantics.engine import Known
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values


class Remark(NamedTuple):
    """One remark: its kind, the part of the program that it is about, and what to look at."""

    kind: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class Remarks(tuple[Remark, ...]):
    """Remarks in the order in which the program runs; prints one per line."""

    def __repr__(self) -> str:
        return printable("\n".join(f"- {remark}" for remark in self) or "Nothing to remark.")

    def _repr_html_(self) -> str:
        return hypertext(self)


def check(q: Programmable, *args: Any) -> Remarks:
    """Look for what is allowed but seldom meant. The program is traced, and nothing is run.

    It tells which variables a target samples from its prior because the proposal lacks them (`missing`), which a
    proposal samples for nothing (`superfluous`), pairs of the two that look like a slip in spelling (`spelling`),
    proposed variables that the target observes (`observed`), proposals that never reach a part of the target
    (`support`), and kernels that never read what they are given (`unread`).

    Args:
        q: a program for the vectorized engine.
        *args: what q is called with, or arrays of the same shapes.

    Returns:
        A tuple of remarks, each with `kind`, `place` and `message`.

    Raises:
        SteelyardError: the program is wrong, as `evaluate` would find.

    Example:
        >>> import numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("weight", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("weigth", dist.Normal(0.0, 1.0))
        >>> sy.check(sy.propose(model, guide))
        - propose(model, guide): 'weigth' in the proposal and 'weight' in the target: are they meant to be the same?
    """
    q = program(q)
    remarks: list[Remark] = []
    abstractly(lambda key: _Inspector(key, remarks).run(q, Values.shared(args)), q)
    return Remarks(dict.fromkeys(remarks))


class _Inspector(Vectorized):
    """An engine that looks on while the rules run on abstract values."""

    def __init__(self, key: Any, remarks: list[Remark]) -> None:
        super().__init__(key, particles=1, seen=self._look)
        self._remarks = remarks
        self._last: dict[int, Evaluation] = {}

    def _look(self, q: Program, tau0: Map[Any] | None, e: Evaluation) -> None:
        self._last[id(q)] = e
        if isinstance(q, Propose) and tau0 is None:
            self._remarks += _compare(q, self._last[id(q.p)], self._last[id(q.q)])

    def remark(self, kind: str, place: str, message: str) -> None:
        self._remarks.append(Remark(kind, place, message))

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any], known: Known | None = None) -> Run:
        result = super().primitive(f, c0, tau0, known)
        if any(c0.varies) and not _reads(f, c0, tau0):
            message = "never reads what it is given. A kernel usually depends on the particle that it moves."
            self._remarks.append(Remark("unread", f.place, message))
        return result


def _compare(q: Propose, p: Evaluation, proposal: Evaluation) -> list[Remark]:
    place = describe(q)
    observed = set(p.log_density) - set(p.trace)
    missing = sorted(set(p.trace) - set(proposal.trace))
    superfluous = sorted(set(proposal.trace) - set(p.trace) - observed)
    remarks = [
        Remark(
            "observed",
            place,
            f"the proposal samples {a!r}, which the target observes; the sample is not used.",
        )
        for a in sorted(observed & set(proposal.trace))
    ]
    for a, b in _near_misses(missing, superfluous):
        message = f"{b!r} in the proposal and {a!r} in the target: are they meant to be the same?"
        remarks.append(Remark("spelling", place, message))
        missing.remove(a)
        superfluous.remove(b)
    for a in missing:
        message = f"{a!r} is not proposed; the target samples it from its prior, which may cost weight."
        remarks.append(Remark("missing", place, message))
    for b in superfluous:
        message = f"{b!r} is proposed, but the target has no such variable; it is auxiliary and is dropped."
        remarks.append(Remark("superfluous", place, message))
    return remarks


def _near_misses(missing: list[str], superfluous: list[str]) -> list[tuple[str, str]]:
    pairs, rest = [], list(superfluous)
    for a in missing:
        folded = {b.casefold(): b for b in rest}
        if close := get_close_matches(a.casefold(), folded, n=1, cutoff=0.75):
            pairs.append((a, folded[close[0]]))
            rest.remove(folded[close[0]])
    return pairs


def _reads(f: Primitive, c0: Values, tau0: Map[Any]) -> bool:
    """Tell whether any density or value in the trace of f depends on the values that differ between particles."""
    one = c0.map_varying(lambda leaf: leaf[0])
    given = Map({a: jax.tree.map(lambda x: x[0], value) for a, value in tau0.items()})
    indices = [i for i, varies in enumerate(c0.varies) if varies]

    def densities(own: list[Any]) -> Any:
        leaves = list(one.leaves)
        for i, leaf in zip(indices, own, strict=True):
            leaves[i] = leaf
        args = jax.tree.unflatten(c0.structure, leaves)

        def draw(_: int, address: str, distribution: Any) -> Any:
            return draw_one(distribution, jax.random.key(0))

        result = run(f, args, draw, given, concrete=False)
        return result.trace, result.log_density

    return _depends(densities, [one.leaves[i] for i in indices])


def _depends(function: Any, example: Any) -> bool:
    jaxpr = jax.make_jaxpr(function)(example).jaxpr
    marks = reach(jaxpr, dict.fromkeys(jaxpr.invars, frozenset(["own"])))
    return any(map(marks, jaxpr.outvars))
