"""The engine for one particle at a given trace, without a particle axis."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from steelyard.compiler.draws import draw
from steelyard.distributions.bijections import pushed
from steelyard.language.programs import Adapt, Mcmc, Primitive, Program, Scan
from steelyard.language.state import Run, run
from steelyard.maps import Map
from steelyard.particles.resampling import Noise
from steelyard.semantics import judgement
from steelyard.semantics.engine import Known, Moved, Premise
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values
from steelyard.semantics.versions import KernelDomains
from steelyard.types import Distribution


class Single:
    """One particle at a given trace, without a particle axis. It draws nothing, and runs under any transformation."""

    log_one = 0.0
    objective = None
    sees_all_addresses = False

    def __init__(self) -> None:
        self.kernels = KernelDomains()

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        return judgement.evaluate(self, Premise(q, c0, tau0))

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        return self.run(q, c0, tau0)

    def mark(self) -> int:
        return 0

    def rewind(self, mark: int) -> None:
        """It draws nothing."""

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any], known: Known | None = None) -> Run:
        result = run(f, c0.tree, _any_draw, tau0, concrete=True)
        return result._replace(value=Values.shared(result.value))

    def known(self, f: Program, c0: Values, e1: Evaluation) -> None:
        return None

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        raise TypeError("a target program has no loop")

    def search(self, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
        raise TypeError("a target program has no loop")

    def walk(self, q: Mcmc, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        raise TypeError("a target program moves nothing")

    def pushed(self, bijection: Any, tau: Map[Any], *, back: bool = False) -> tuple[Map[Any], dict[str, Any]]:
        values, log_det = pushed(bijection, dict(tau), back=back)
        return Map(values), log_det

    def accepts(self, log_alpha: Any) -> Any:
        raise TypeError("a target program moves nothing")

    def remark(self, kind: str, place: str, message: str) -> None:
        """Nothing is proposed at a given trace."""

    def noise(self, method: str, log_weights: Any) -> Noise:
        raise TypeError("a target program does not resample")

    def noises(self, method: str, rows: Any) -> Noise:
        raise TypeError("a target program does not resample")


def _any_draw(site: int, address: str, distribution: Distribution) -> Any:
    return draw(distribution, jax.random.key(0))


def is_accepted(uniforms: Any, log_alpha: Any) -> Any:
    """Tell who accepts, from two uniform numbers for each: one alone has too few digits for small probabilities."""
    xp = log_alpha.__array_namespace__()
    uniform = uniforms[:, 0] + uniforms[:, 1] * 2.0**-23
    return (uniform < xp.exp(xp.minimum(log_alpha, 0.0))) | (log_alpha >= 0)


def at_particle(p: Program, c0: Values, index: int) -> Callable[[Map[Any]], Evaluation]:
    """Return the evaluation of a program for one particle, as a function of its trace."""
    return partial(Single().run, p, Values.shared(c0.of_particle(index)))
