"""What the rules ask of an engine."""

from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from steelyard.language.programs import Adapt, Mcmc, Primitive, Program, Scan
from steelyard.language.state import Run
from steelyard.maps import Map
from steelyard.particles.resampling import Noise
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.levels import Objective
from steelyard.semantics.values import Values
from steelyard.semantics.versions import KernelDomains

Trace: TypeAlias = Map[Any]


@runtime_checkable
class Known(Protocol):
    """What is known of a program before it runs: densities that are the same as they were."""

    @property
    def log_density(self) -> Map[Any]:
        """The densities that need not be computed again."""
        ...


class Premise(NamedTuple):
    """The question of a rule: to what does q, called with c0, evaluate, with the values of tau0 substituted?

    `known` is what the marginal of q need not compute again.
    """

    q: Program
    c0: Values
    tau0: Trace | None = None
    known: Known | None = None


Rule: TypeAlias = Generator[Premise, Evaluation, Evaluation]


class Moved(NamedTuple):
    """Where a Markov kernel moved a particle: new values, and how often it accepted."""

    values: Trace
    acceptance: Any


class Engine(Protocol):
    """What the rules ask of an engine."""

    @property
    def log_one(self) -> Any:
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

    @property
    def kernels(self) -> KernelDomains:
        """What kernels replaced so far."""
        ...

    def mark(self) -> int:
        """Return the place in the stream of random numbers."""
        ...

    def rewind(self, mark: int) -> None:
        """Go back to a place in the stream of random numbers."""
        ...

    def run(self, q: Program, c0: Values, tau0: Trace | None = None) -> Evaluation:
        """Evaluate a program, by its rule."""
        ...

    def at(self, q: Program, c0: Values, tau0: Trace) -> Evaluation:
        """Evaluate a program at a trace that has all its variables, without using up randomness."""
        ...

    def primitive(self, f: Primitive, c0: Values, tau0: Trace, known: Known | None = None) -> Run:
        """Run a primitive program for every particle, under substitution."""
        ...

    def known(self, f: Program, c0: Values, e1: Evaluation) -> Known | None:
        """Return what f need not compute again at the trace of e1, whose particles were called with c0."""
        ...

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        """Evaluate the steps of a scan, from the evaluation of the program that it begins with."""
        ...

    def remark(self, kind: str, place: str, message: str) -> None:
        """Tell the user what is allowed, but leads to results that are seldom meant."""
        ...

    def search(self, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
        """Evaluate the steps of an adaptive scan."""
        ...

    def walk(self, q: Mcmc, p: Program, c0: Values, tau: Trace) -> Moved:
        """Move every particle on its own by the kernel of q, which leaves the density of p invariant."""
        ...

    def pushed(self, bijection: Any, tau: Trace, *, back: bool = False) -> tuple[Trace, dict[str, Any]]:
        """Push the values of every particle through a bijection, and return log determinants by address."""
        ...

    def accepts(self, log_alpha: Any) -> Any:
        """Tell which particles accept what has these acceptance ratios."""
        ...

    def noise(self, method: str, log_weights: Any) -> Noise:
        """Draw what a resampler needs."""
        ...

    def noises(self, method: str, rows: Any) -> Noise:
        """Draw what resamplers of islands need, from log weights by island; along a first axis."""
        ...
