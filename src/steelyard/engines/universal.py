"""The engine that runs one particle after the other, in plain Python."""

from functools import partial
from typing import Any

import jax
import numpy as np

from steelyard.compiler.keys import KeyCounter
from steelyard.engines.compiled import CompiledSites, Taking
from steelyard.engines.deferred import DeferredDensities
from steelyard.engines.degenerate import Looker
from steelyard.engines.gathering import moved_together, together
from steelyard.engines.one_by_one import OneByOne
from steelyard.engines.single import at_particle, is_accepted
from steelyard.engines.voice import Voice
from steelyard.engines.walk import Transition
from steelyard.language.programs import Primitive, Program
from steelyard.language.state import Run, State, run
from steelyard.maps import Map
from steelyard.particles.resampling import Noise, draw_noise
from steelyard.semantics import judgement
from steelyard.semantics.engine import Known, Moved, Premise
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values
from steelyard.semantics.versions import KernelDomains
from steelyard.types import Function, Key


class Universal(OneByOne):
    """One particle after the other, in plain Python on concrete values: programs may branch, loop and recurse."""

    def __init__(
        self,
        key: Key,
        particles: int,
        objective: Function | None = None,
        seen: Looker | None = None,
        state: type[State] = State,
    ) -> None:
        self._keys = KeyCounter(key)
        self._particles = particles
        self._seen = seen
        self._state = state
        self._voice = Voice()
        self.log_one = np.zeros(particles)
        self.objective = objective
        self.kernels = KernelDomains()

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        return judgement.evaluate(self, Premise(q, c0, tau0), self._seen)

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        with self._keys.counting(self._keys.used):
            return self.run(q, c0, tau0)

    def mark(self) -> int:
        return self._keys.mark()

    def rewind(self, mark: int) -> None:
        self._keys.rewind(mark)

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any], known: Known | None = None) -> Run:
        level, taking = self._keys.next(), Taking()
        deferred = DeferredDensities(taking)
        is_tempered = not isinstance(f.power, float) or f.power != 1
        density = deferred.at_once if is_tempered else deferred
        options: dict[str, Any] = {"concrete": True, "density": density, "state": self._state}
        results = [
            run(f, c0.of_particle(l), CompiledSites(level, l, taking), tau0.of_particle(l), **options)
            for l in range(self._particles)
        ]
        return together(results)

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        """Move every particle on its own, by a random function that may evaluate p for it at any trace."""
        level = self._keys.next()
        return moved_together(
            [
                transition(at_particle(p, c0, l), partial(level, l), tau.of_particle(l))  # noqa: B023
                for l in range(self._particles)
            ]
        )

    def accepts(self, log_alpha: Any) -> Any:
        level = self._keys.next()
        uniforms = [np.asarray(jax.random.uniform(level(l), (2,)), float) for l in range(self._particles)]
        return is_accepted(np.stack(uniforms), log_alpha)

    def remark(self, kind: str, place: str, message: str) -> None:
        self._voice.say(f"{place}: {message}")

    def noise(self, method: str, log_weights: Any) -> Noise:
        return draw_noise(self._keys.next()(0), method, self._particles).to_uniforms()

    def noises(self, method: str, rows: Any) -> Noise:
        level = self._keys.next()
        return Noise.stacked([draw_noise(level(i), method, len(row)).to_uniforms() for i, row in enumerate(rows)])
