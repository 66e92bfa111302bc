"""What engines that run one particle after the other have in common: loops are written out, and nothing is reused."""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

from steelyard.engines.gathering import pushed_one_by_one
from steelyard.engines.walk import Transition, walk
from steelyard.language.programs import Adapt, Mcmc, Program, Scan
from steelyard.maps import Map
from steelyard.semantics import adaptive, scans
from steelyard.semantics.engine import Engine, Moved
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values


class OneByOne(ABC):
    """An engine on concrete values: each particle may have other addresses."""

    sees_all_addresses = False
    _particles: int

    def known(self, f: Program, c0: Values, e1: Evaluation) -> None:
        return None

    def loop(self: Engine, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        return scans.unrolled(self, q, e0, c0)

    def search(self: Engine, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
        return adaptive.written_out(self, q, e0, c0)

    def walk(self, q: Mcmc, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        return self.each(partial(walk, q, self.sees_all_addresses), p, c0, tau)

    @abstractmethod
    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        """Move every particle on its own, by a random function that may evaluate p for it at any trace."""

    def pushed(self, bijection: Any, tau: Map[Any], *, back: bool = False) -> tuple[Map[Any], dict[str, Any]]:
        return pushed_one_by_one(bijection, tau, self._particles, back=back)
