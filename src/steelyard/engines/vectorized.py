"""The engine that runs all particles at once, under `vmap`."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from steelyard.compiler import search
from steelyard.compiler.equations import without_gradients
from steelyard.compiler.keys import Drawn, FirstWords, KeyCounter, LevelDraws, Sites
from steelyard.compiler.passes import Pass, chosen
from steelyard.compiler.previews import Previews
from steelyard.compiler.randomness import computed_once, has_words_anywhere, threefry_key, word_at
from steelyard.compiler.reuse import EquationCache, Reuse
from steelyard.compiler.rolled import rolled
from steelyard.devices.layout import SPLIT, apart_on_devices, as_on_a_device, devices, laid_out
from steelyard.distributions.bijections import pushed
from steelyard.engines.degenerate import Looker
from steelyard.engines.progress import Watch, watched_map
from steelyard.engines.single import Single, is_accepted
from steelyard.engines.voice import Voice
from steelyard.engines.walk import Transition, walk
from steelyard.language.programs import Adapt, Mcmc, Primitive, Program, Scan
from steelyard.language.state import Draw, Run, State, run
from steelyard.maps import Map
from steelyard.particles.resampling import Noise, draw_noise
from steelyard.semantics import judgement
from steelyard.semantics.engine import Known, Moved, Premise
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values
from steelyard.semantics.versions import KernelDomains
from steelyard.types import Function, Key, is_staged, is_traced


class Vectorized:
    """All particles at once, in JAX. Programs may not branch on what they sampled, but for `s.when`."""

    sees_all_addresses = True

    def __init__(
        self,
        key: Key,
        particles: int,
        objective: Function | None = None,
        *,
        optimize: bool | Collection[Pass] = True,
        chunk: int | None = None,
        watch: Watch | None = None,
        seen: Looker | None = None,
        state: type[State] = State,
    ) -> None:
        self._keys = KeyCounter(key)
        self._particles = particles
        self.passes = chosen(optimize)
        self._run_for_each = partial(run_for_each, chunk=chunk, watch=watch)
        self._seen = seen
        self._state = state
        self._equations = EquationCache()
        self._voice = Voice()
        self._is_traced = is_traced(key)
        self.log_one = laid_out(jnp.zeros(particles), particles)
        self.objective = objective
        self.kernels = KernelDomains()
        self.previews = Previews()

    def known(self, f: Program, c0: Values, e1: Evaluation) -> Reuse | None:
        # Equations are run by devices, and traced as such.
        with as_on_a_device(self._particles):
            return self._equations.reuse(f, c0, e1) if "reuse" in self.passes else None

    def run(self, q: Program, c0: Values, tau0: Map[Any] | None = None) -> Evaluation:
        return judgement.evaluate(self, Premise(q, c0, tau0), self._seen)

    def at(self, q: Program, c0: Values, tau0: Map[Any]) -> Evaluation:
        with self._keys.counting(self._keys.used):
            return self.run(q, c0, tau0)

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any], known: Known | None = None) -> Run:
        draws, particles = self.draws(), self._numbers()
        if isinstance(known, Reuse):
            return self._rest(known, c0, tau0)

        def one(args: Any, particle: Any, given: Map[Any], first: FirstWords) -> tuple[Any, tuple[Any, ...]]:
            draw = draws(particle, first)
            value, *others = run(f, args, draw, given, concrete=False, state=self._state)
            return value, (draw.drawn() if isinstance(draw, Sites) else Drawn(), *others)

        def every(together: Drawn) -> tuple[Any, tuple[Drawn, Any]]:
            first = draws.first(together, particles) if isinstance(draws, LevelDraws) else {}
            return self._run_for_each(one, c0, particles, tau0, first)

        # What a program draws is seen only when it runs.
        place = self._keys.mark()
        expected = self.previews.expected_draws(place)
        value, (drawn, *others) = every(expected)
        together = drawn if "draws" in self.passes and drawn.many and is_staged() else Drawn()
        if together != expected and not self.previews.active:
            value, (_, *others) = every(together)
        self.previews.expect_draws(place, together)
        return Run(value, *others)

    def _numbers(self) -> Any:
        return laid_out(jnp.arange(self._particles), self._particles)

    def _rest(self, known: Reuse, c0: Values, tau0: Map[Any]) -> Run:
        """Run what is left of a primitive program of which some results are known."""
        rho, equations, kept = known
        needed, given, one = equations.computing([a for a in equations.needs if a not in rho], kept)
        varying = self._numbers(), tau0.restrict(needed), given
        value, (changed, computed) = self._run_for_each(one, c0, *varying)
        return Run(value.with_leaves(kept), equations.trace(tau0, changed), computed | rho, None)

    def draws(self) -> Callable[[Any, FirstWords], Draw]:
        """Return how the particles of the next level draw, as a function of the particle."""
        return LevelDraws(self._keys.next())

    def loop(self, q: Scan, e0: Evaluation, c0: Values) -> Evaluation:
        return rolled(self, q, e0, c0)

    @property
    def used(self) -> Any:
        """How many levels were used."""
        return self._keys.used

    def skip(self, count: int) -> None:
        """Use up numbers."""
        self._keys.skip(count)

    def mark(self) -> int:
        return self._keys.mark()

    def rewind(self, mark: int) -> None:
        self._keys.rewind(mark)

    def counting(self, start: Any) -> AbstractContextManager[Callable[[], int]]:
        """Count levels from another number."""
        return self._keys.counting(start)

    def search(self, q: Adapt, e0: Evaluation, c0: Values) -> Evaluation:
        return search.compiled(self, q, e0, c0)

    def walk(self, q: Mcmc, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        return self.each(partial(walk, q, self.sees_all_addresses), p, c0, tau)

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        """Move every particle on its own, by a random function that may evaluate p for it at any trace."""
        level = self._keys.next()

        def one(args: Any, particle: Any, given: Map[Any]) -> tuple[None, Moved]:
            at = partial(Single().run, p, Values.shared(args))
            try:
                return None, transition(at, partial(level, particle), given)
            except NotImplementedError:
                return None, transition(at, lambda number: threefry_key(level(particle, number)), given)

        def every(own: list[Any], tau: Map[Any]) -> Moved:
            return self._run_for_each(one, c0.with_varying(own), self._numbers(), tau)[1]

        return without_gradients(every)(c0.varying(), tau)

    def pushed(self, bijection: Any, tau: Map[Any], *, back: bool = False) -> tuple[Map[Any], dict[str, Any]]:
        values, log_det = jax.vmap(partial(pushed, bijection, back=back))(dict(tau))
        return Map(values), log_det

    def accepts(self, log_alpha: Any) -> Any:
        keys = jax.vmap(self._keys.next())(self._numbers())
        accepted = is_accepted(jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys), log_alpha)
        # Else all that follows would decide again, and all that was decided before it.
        return jax.vmap(computed_once)(keys, accepted)

    def remark(self, kind: str, place: str, message: str) -> None:
        # A program is traced before it runs. What is said then is not said again.
        if self._is_traced:
            self._voice.say(f"{place}: {message}")

    def noise(self, method: str, log_weights: Any) -> Noise:
        key = self._keys.next()(0)
        anywhere = has_words_anywhere(key, 2 * self._particles + 2)
        return draw_noise(key, method, self._particles, partial(word_at, key) if anywhere else None)

    def noises(self, method: str, rows: Any) -> Noise:
        level, (islands, size) = self._keys.next(), rows.shape
        draw = jax.vmap(lambda island: draw_noise(level(island), method, size))
        if devices(islands) > 1:
            draw = apart_on_devices(draw, SPLIT, SPLIT)
        return draw(laid_out(jnp.arange(islands), islands))


def run_for_each(
    function: Callable[..., tuple[Any, Any]],
    arguments: Values,
    *varying: Any,
    chunk: int | None = None,
    watch: Watch | None = None,
) -> tuple[Values, Any]:
    """Run `function(argument_tree, *varying) -> (value, other)` for every particle under `vmap`.

    Leaves of the value that are leaves of shared arguments, or constants, stay shared. With `chunk` that many
    particles run at a time, one batch after the other; for a gradient each batch runs again, so that nothing is kept.
    A watch is asked before each of them.
    """
    shared = [x for x, v in zip(arguments.leaves, arguments.varies, strict=True) if not v]
    known: dict[str, Any] = {}

    def one(own: list[Any], *others: Any) -> tuple[list[Any], Any]:
        own_leaves = iter(own)
        leaves = [next(own_leaves) if v else x for x, v in zip(arguments.leaves, arguments.varies, strict=True)]
        value, rest = function(jax.tree.unflatten(arguments.structure, leaves), *others)
        results, structure = jax.tree.flatten(value)
        varies = tuple(is_traced(x) and not any(x is y for y in shared) for x in results)
        known.update(results=results, varies=varies, structure=structure)
        return [x for x, v in zip(results, varies, strict=True) if v], rest

    def every(*particles: Any) -> Any:
        if chunk is None:
            return jax.vmap(one)(*particles)
        single = jax.checkpoint(lambda xs: one(*xs))
        if watch is not None:
            return watched_map(single, particles, chunk, watch)
        return jax.lax.map(single, particles, batch_size=chunk)

    particles = arguments.varying(), *varying
    if devices(jax.tree.leaves(particles)[0].shape[0]) > 1:
        # Programs are independent of each other: on its device each runs as if there were no other.
        every = apart_on_devices(_not_alone(every), SPLIT, SPLIT)
    results, rest = every(*particles)
    results = iter(results)
    leaves = (next(results) if v else x for x, v in zip(known["results"], known["varies"], strict=True))
    return Values(tuple(leaves), known["varies"], known["structure"]), rest


def _not_alone(every: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs a single particle twice, and forgets the second.

    XLA takes an array of one number for a number, and rounds quotients differently there.
    """

    def run(*particles: Any) -> Any:
        if jax.tree.leaves(particles)[0].shape[0] > 1:
            return every(*particles)
        twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), particles)
        return jax.tree.map(lambda x: x[:1], every(*twice))

    return run
