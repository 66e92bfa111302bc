"""What the rules know of an evaluation beyond its judgement: facts about its values and its densities."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax

from steelyard.language.programs import Primitive
from steelyard.maps import Map, take
from steelyard.semantics.values import Values
from steelyard.types import Ancestors, LogWeights

if TYPE_CHECKING:
    from steelyard.semantics.evaluation import Evaluation


@dataclass(frozen=True, eq=False)
class Provenance:
    """Where the densities of an evaluation are from: a program at arguments, and the variables replaced since then.

    `variables` tells whether those that the program returns as they are count among the quantities that are kept.
    """

    f: Primitive
    c0: Values
    replaced: frozenset[str] = frozenset()
    variables: bool = False

    def without(self, addresses: Iterable[str]) -> "Provenance":
        """Return the provenance after variables were replaced."""
        return replace(self, replaced=self.replaced | frozenset(addresses))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Facts:
    """Facts about an evaluation that rules and objectives need.

    Attributes:
        score: the log density of the variables that were drawn and are not reparameterised; None without any.
        kernel: of a compose or move, the evaluation of the program that ran last.
        marginal: of an extended target, the evaluation of its marginal, which was made on the way.
        fixed: whether no gradient flows into the values of the trace.
        partial: whether variables were dropped, so that the densities are not those of the whole program.
        joint: the variables that a bijection mixed, whose densities have a meaning only together.
        detached_log_density: in a loop, the densities at detached values, which only the step before could evaluate.
        provenance: which program the densities are of, while it is known.
        returned: what that program returned. It need not be computed again until a variable of it is replaced.
    """

    score: LogWeights | None = None
    kernel: "Evaluation | None" = None
    marginal: "Evaluation | None" = None
    fixed: bool = field(default=False, metadata={"static": True})
    partial: bool = field(default=False, metadata={"static": True})
    joint: tuple[frozenset[str], ...] = field(default=(), metadata={"static": True})
    detached_log_density: Map[Any] | None = None
    provenance: Provenance | None = field(default=None, metadata={"static": True})
    returned: Values | None = None

    def then(self, after: "Evaluation") -> "Facts":
        """Return the facts of two programs one after the other."""
        return Facts(
            total_score(self.score, after.score),
            after,
            fixed=self.fixed and after.fixed,
            partial=self.partial or after.facts.partial,
            joint=self.joint + after.facts.joint,
            provenance=self.provenance,
            returned=self.returned,
        )

    def detached(self) -> "Facts":
        """Return the facts of the same particles, from which no gradient flows."""
        return replace(
            self, score=None, kernel=None, marginal=None, fixed=True, detached_log_density=None, returned=None
        )

    def reindex(self, ancestors: Ancestors, before: Values, after: Values) -> "Facts":
        """Return the facts of particles that were resampled; the values of the evaluation became other ones."""
        kept, returned = self.detached_log_density, self.returned
        if returned is not None:
            returned = after if returned is before else returned.reindex(ancestors)
        return replace(
            self,
            score=take(self.score, ancestors),
            kernel=None,
            marginal=None,
            detached_log_density=None if kept is None else kept.reindex(ancestors),
            returned=returned,
        )

    def rename(self, new: Callable[[str], str]) -> "Facts":
        """Return the facts under other addresses."""
        kept = self.detached_log_density
        return replace(
            self,
            kernel=None if self.kernel is None else self.kernel.rename(new),
            joint=tuple(frozenset(map(new, group)) for group in self.joint),
            detached_log_density=None if kept is None else kept.rename(new),
            provenance=None,
            returned=None,
        )


def total_score(*scores: LogWeights | None) -> LogWeights | None:
    """Return the sum of scores, of which None is the empty one."""
    known = [score for score in scores if score is not None]
    return sum(known[1:], start=known[0]) if known else None
