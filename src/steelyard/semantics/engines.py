"""How primitive programs run: for all particles at once under `vmap`, one by one in Python, or at a given trace."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from warnings import warn

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import SupportWarning
from steelyard.language.bijections import pushed
from steelyard.language.programs import Adapt, Primitive, Program, Scan
from steelyard.language.state import Draw, Run, run
from steelyard.maps import Domain, Map, dom
from steelyard.particles.randomness import computed_once, threefry_key
from steelyard.particles.resampling import Noise, draw_noise
from steelyard.semantics import adaptive, judgement, loops
from steelyard.semantics.degenerate import Looker
from steelyard.semantics.dependencies import Reuse, Tables
from steelyard.semantics.draws import draw
from steelyard.semantics.engine import Moved, Transition
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.gathering import moved_together, pushed_one_by_one, together
from steelyard.semantics.jaxprs import without_gradients
from steelyard.semantics.keys import Levels, Sites
from steelyard.semantics.values import Values, run_for_each
from steelyard.types import Distribution, Function, Key, is_traced


class _Voice:
    """What is said to the user, each thing once, however often a program is traced."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, message: str) -> None:
        """Warn, unless it was said before."""
        if message not in self._said:
            self._said.add(message)
            warn(message, SupportWarning, stacklevel=2)


class Vectorized:
    """All particles at once, in JAX. Programs may not branch on what they sampled, but for `s.when`."""

    sees_all_addresses = True

    def __init__(
        self,
        key: Key,
        particles: int,
        objective: Function | None = None,
        *,
        incremental: bool = True,
        chunk: int | None = None,
        seen: Looker | None = None,
    ) -> None:
        self._levels = Levels(key)
        self._particles = particles
        self._incremental = incremental
        self._chunk = chunk
        self._seen = seen
        self._tables = Tables()
        self._voice = _Voice()
        self._is_traced = is_traced(key)
        self._reuse: Reuse | None = None
        self.one = jnp.zeros(particles)
        self.objective = objective

    @contextmanager
    def reusing(self, p: Program, c0: Values, e1: Evaluation) -> Iterator[Domain]:
        self._reuse = self._tables.reuse(p, c0, e1) if self._incremental else None
        yield Domain() if self._reuse is None else dom(self._reuse.known)
        self._reuse = None

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        return judgement.evaluate(self, q, c0, tau0, self._seen)

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        with self._levels.counting(self._levels.used):
            return self.run(q, c0, tau0)

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any]) -> Run:
        draws, particles = self.draws(), jnp.arange(self._particles)
        if self._reuse is not None and self._reuse.f == f:
            # Once: a kernel of the target may be the same program.
            (_, known, equations, kept), self._reuse = self._reuse, None
            needed, given, one = equations.computing([a for a in equations.needs if a not in known], kept)
            varying = particles, tau0.restrict(needed), given
            value, (changed, rho) = run_for_each(one, c0, *varying, chunk=self._chunk)
            return Run(value.with_leaves(kept), equations.trace(tau0, changed), rho | known, None)

        def one(args: Any, particle: Any, given: Map[Any]) -> tuple[Any, tuple[Any, ...]]:
            value, *others = run(f, args, draws(particle), given, concrete=False)
            return value, tuple(others)

        value, others = run_for_each(one, c0, particles, tau0, chunk=self._chunk)
        return Run(value, *others)

    def draws(self) -> Callable[[Any], Draw]:
        """Return how the particles of the next level draw, as a function of the particle."""
        return partial(Sites, self._levels.next())

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        return loops.rolled(self, q, e0, c0)

    @property
    def used(self) -> Any:
        """How many levels were used."""
        return self._levels.used

    def skip(self, count: int) -> None:
        """Use up numbers."""
        self._levels.skip(count)

    def counting(self, start: Any) -> AbstractContextManager[Callable[[], int]]:
        """Count levels from another number."""
        return self._levels.counting(start)

    def search(self, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
        return adaptive.compiled(self, q, e0, c0)

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        level = self._levels.next()

        def one(args: Any, particle: Any, given: Map[Any]) -> tuple[None, Moved]:
            at = partial(Single().run, p, Values.shared(args))
            try:
                return None, transition(at, partial(level, particle), given)
            except NotImplementedError:
                return None, transition(at, lambda number: threefry_key(level(particle, number)), given)

        def every(own: list[Any], tau: Map[Any]) -> Moved:
            return run_for_each(one, c0.with_varying(own), jnp.arange(self._particles), tau, chunk=self._chunk)[1]

        return without_gradients(every)(c0.varying(), tau)

    def pushed(self, bijection: Any, tau: Map[Any], *, back: bool = False) -> tuple[Map[Any], dict[str, Any]]:
        values, log_det = jax.vmap(partial(pushed, bijection, back=back))(dict(tau))
        return Map(values), log_det

    def accepts(self, log_alpha: Any) -> Any:
        keys = jax.vmap(self._levels.next())(jnp.arange(self._particles))
        accepted = is_accepted(jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys), log_alpha)
        # Else all that follows would decide again, and all that was decided before it.
        return jax.vmap(computed_once)(keys, accepted)

    def remark(self, kind: str, place: str, message: str) -> None:
        # A program is traced before it runs. What is said then is not said again.
        if self._is_traced:
            self._voice.say(f"{place}: {message}")

    def noise(self, method: str, log_weights: Any) -> Noise:
        return draw_noise(self._levels.next()(0), method, self._particles)


class Universal:
    """One particle after the other, in plain Python on concrete values: programs may branch, loop and recurse."""

    sees_all_addresses = False

    def __init__(self, key: Key, particles: int, objective: Function | None = None, seen: Looker | None = None) -> None:
        self._levels = Levels(key)
        self._particles = particles
        self._seen = seen
        self._voice = _Voice()
        self.one = np.zeros(particles)
        self.objective = objective

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        return judgement.evaluate(self, q, c0, tau0, self._seen)

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        with self._levels.counting(self._levels.used):
            return self.run(q, c0, tau0)

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any]) -> Run:
        level = self._levels.next()
        results = [
            run(f, c0.of_particle(l), Sites(level, l), tau0.of_particle(l), concrete=True)
            for l in range(self._particles)
        ]
        return together(results)

    def reusing(self, p: Program, c0: Values, e1: Evaluation) -> AbstractContextManager[Domain]:
        return nullcontext(Domain())

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        return loops.unrolled(self, q, e0, c0)

    def search(self, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
        return adaptive.written_out(self, q, e0, c0)

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        level = self._levels.next()
        return moved_together(
            [
                transition(at_particle(p, c0, l), partial(level, l), tau.of_particle(l))  # noqa: B023
                for l in range(self._particles)
            ]
        )

    def pushed(self, bijection: Any, tau: Map[Any], *, back: bool = False) -> tuple[Map[Any], dict[str, Any]]:
        return pushed_one_by_one(bijection, tau, self._particles, back=back)

    def accepts(self, log_alpha: Any) -> Any:
        level = self._levels.next()
        uniforms = [np.asarray(jax.random.uniform(level(l), (2,)), float) for l in range(self._particles)]
        return is_accepted(np.stack(uniforms), log_alpha)

    def remark(self, kind: str, place: str, message: str) -> None:
        self._voice.say(f"{place}: {message}")

    def noise(self, method: str, log_weights: Any) -> Noise:
        return draw_noise(self._levels.next()(0), method, self._particles).to_uniforms()


class Single:
    """One particle at a given trace, without a particle axis. It draws nothing, and runs under any transformation."""

    one = 0.0
    objective = None
    sees_all_addresses = False

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        return judgement.evaluate(self, q, c0, tau0)

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        return self.run(q, c0, tau0)

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any]) -> Run:
        result = run(f, c0.tree, _any_draw, tau0, concrete=True)
        return result._replace(value=Values.shared(result.value))

    def reusing(self, p: Program, c0: Values, e1: Evaluation) -> AbstractContextManager[Domain]:
        return nullcontext(Domain())

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        raise TypeError("a target program has no loop")

    def search(self, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
        raise TypeError("a target program has no loop")

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
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
