"""What the rules ask of an engine."""

from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from steelyard.language.programs import Primitive, Program, Propose, Scan
from steelyard.language.state import Run
from steelyard.maps import Domain, Map
from steelyard.particles.resampling import Noise
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.levels import Objective
from steelyard.semantics.values import Values

Trace: TypeAlias = Map[Any]


class Engine(Protocol):
    """What the rules ask of an engine."""

    @property
    def one(self) -> Any:
        """The log weights of particles of weight one."""
        ...

    @property
    def objective(self) -> Objective | None:
        """What every propose that has no objective of its own contributes to the loss."""
        ...

    @property
    def sees_all_addresses(self) -> bool:
        """Whether a run shows every address of a program: not, where programs run on concrete values and branch."""
        ...

    def run(self, q: Program, c0: Values, tau0: Trace | None = None) -> Evaluation:
        """Evaluate a program, by its rule."""
        ...

    def at(self, q: Program, c0: Values, tau0: Trace) -> Evaluation:
        """Evaluate a program at a trace that has all its variables, without using up randomness."""
        ...

    def primitive(self, f: Primitive, c0: Values, tau0: Trace) -> Run:
        """Run a primitive program for every particle, under substitution."""
        ...

    def reusing(self, q: Propose, c0: Values, e1: Evaluation) -> AbstractContextManager[Domain]:
        """Take densities over from the proposal of q when its target runs inside, and tell which are the same."""
        ...

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        """Evaluate the steps of a scan, from the evaluation of the program that it begins with."""
        ...

    def remark(self, kind: str, place: str, message: str) -> None:
        """Tell the user what is allowed, but leads to results that are seldom meant."""
        ...

    def noise(self, method: str, log_weights: Any) -> Noise:
        """Draw what a resampler needs."""
        ...
