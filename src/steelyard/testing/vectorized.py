"""Every outcome of a program as the vectorized engine computes it, with everything on that makes it fast.

Under `vmap` a draw cannot be made in every way. So the draws are made before: the universal engine goes through the
program in every way and writes down what was drawn in which level, and the vectorized engine looks it up where it
would draw. Everything else is its own: densities and which of them it reuses, presence, resampling, loops, weights.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.compiler.draws import draw
from steelyard.engines.abstract import abstractly
from steelyard.engines.gathering import moved_together, together
from steelyard.engines.single import Single, at_particle, is_accepted
from steelyard.engines.universal import Universal
from steelyard.engines.vectorized import Vectorized, run_for_each
from steelyard.engines.walk import Transition
from steelyard.language.programs import Primitive, Program
from steelyard.language.state import Draw, Run, run
from steelyard.maps import Map
from steelyard.particles.resampling import RESAMPLERS, Noise
from steelyard.particles.weights import normalize
from steelyard.semantics.engine import Known, Moved
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values
from steelyard.semantics.versions import KernelDomains
from steelyard.testing.outcomes import Branch, Dice, Outcome, branches, either_way, every_noise, every_value, frozen
from steelyard.types import Distribution

# How many outcomes are computed at once: few different numbers, so that JAX seldom has to compile its operations.
BATCHES = (64, 512, 4096)


class Script(NamedTuple):
    """What is drawn on the way to one outcome: values by level, site and particle, and the noise of resamplings."""

    values: dict[tuple[int, int, int], Any]
    noise: dict[int, Noise]


class Tables(NamedTuple):
    """Scripts as arrays, with an axis of outcomes in front; values of each shape are in a table of their own."""

    values: dict[tuple[int, ...], Any]
    noise: Noise


class Writing(Universal):
    """The universal engine along one branch, which writes down what it draws."""

    def __init__(self, particles: int) -> None:
        super().__init__(jax.random.key(0), particles)
        self._branch = Branch()
        self._script = Script({}, {})
        self._known: dict[Any, Any] = {}

    def along(self, branch: Branch, q: Program, c0: Values) -> Script:
        """Evaluate a program with the choices of a branch."""
        self._branch, self._script = branch, Script({}, {})
        # The same branch must do the same whenever it is run.
        self.kernels = KernelDomains()
        with self._keys.counting(0):
            self.run(q, c0)
        return self._script

    def primitive(self, f: Primitive, c0: Values, tau0: Map[Any], known: Known | None = None) -> Run:
        self._keys.skip(1)
        results = []
        for l in range(self._particles):
            args, given = c0.of_particle(l), tau0.of_particle(l)
            result, drawn = self._branch.choose(lambda: self._outcomes(f, args, given))  # noqa: B023
            self._script.values.update({(self._keys.used, site, l): value for site, value in drawn.items()})
            results.append(result)
        return together(results)

    def _outcomes(self, f: Primitive, args: Any, given: Map[Any]) -> list[Outcome]:
        """Return what one particle may do; particles are in the same state again and again."""
        mark = f, frozen(jax.tree.leaves(args)), str(jax.tree.structure(args)), frozen(given)
        if mark not in self._known:
            # The arguments stay alive with it, for some objects are told apart by where they are.
            self._known[mark] = list(_runs(f, args, given)), args
        return self._known[mark][0]

    def accepts(self, log_alpha: Any) -> Any:
        self._keys.skip(1)
        accepted = np.array([self._branch.choose(lambda x=x: either_way(x)) for x in log_alpha])
        # A number that says so to whoever has the same acceptance ratio.
        alpha = np.exp(np.minimum(log_alpha, 0.0))
        for l, uniform in enumerate(np.where(accepted, alpha / 2, (1 + alpha) / 2)):
            self._script.values[self._keys.used, 0, l] = uniform
        return accepted

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        self._keys.skip(1)
        level, results = self._keys.used, []

        for l in range(self._particles):

            def dice(number: int, l: int = l) -> Dice:
                def choose(alternatives: Callable[[], list[Outcome]]) -> Any:
                    self._script.values[level, number, l] = self._branch.choose(alternatives)
                    return self._script.values[level, number, l]

                return Dice(choose)

            results.append(transition(at_particle(p, c0, l), dice, tau.of_particle(l)))
        return moved_together(results)

    def noise(self, method: str, log_weights: Any) -> Noise:
        self._keys.skip(1)
        noise = self._branch.choose(lambda: list(every_noise(method, normalize(log_weights))))
        self._script.noise[self._keys.used] = noise
        return noise

    def noises(self, method: str, rows: Any) -> Noise:
        return Noise.stacked([self.noise(method, row) for row in rows])


def _runs(f: Primitive, args: Any, given: Map[Any]) -> Iterator[Outcome]:
    """Yield every run of a primitive program for one particle, with what was drawn by site."""
    for branch in branches():
        drawn: dict[int, Any] = {}

        def choose(site: int, address: str, distribution: Distribution) -> Any:
            drawn[site] = branch.choose(lambda: every_value(address, distribution))  # noqa: B023
            return drawn[site]  # noqa: B023

        result = run(f, args, choose, given, concrete=True)
        yield Outcome(branch.probability, (result, drawn))


class Reading(Vectorized):
    """The vectorized engine, which looks up what it would draw. Its levels may be traced: scans are loops."""

    def __init__(self, particles: int, tables: Tables, *, optimize: bool = True) -> None:
        super().__init__(jax.random.key(0), particles, optimize=optimize)
        self._read = tables

    def draws(self) -> Callable[..., Draw]:
        self.skip(1)
        level = self.used

        def of_particle(particle: Any, first: Any) -> Draw:
            def look_up(site: int, address: str, distribution: Distribution) -> Any:
                value = jax.eval_shape(lambda key: draw(distribution, key), jax.random.key(0))
                table = self._read.values.get(value.shape)
                # No outcome has a variable here: it is given, or absent, in all particles.
                if table is None or site >= table.shape[1]:
                    return jnp.zeros(value.shape, value.dtype)
                return table[level, site, particle].astype(value.dtype)

            return look_up

        return of_particle

    def accepts(self, log_alpha: Any) -> Any:
        self.skip(1)
        uniforms = self._written(self.used, 0, jnp.arange(self._particles))
        return is_accepted(jnp.stack([uniforms, jnp.zeros_like(uniforms)], axis=-1), log_alpha)

    def each(self, transition: Transition, p: Program, c0: Values, tau: Map[Any]) -> Moved:
        self.skip(1)
        level = self.used

        def one(args: Any, particle: Any, given: Map[Any]) -> tuple[None, Moved]:
            def dice(number: Any) -> Any:
                return SimpleNamespace(roll=lambda _: self._written(level, number, particle).astype(int))

            return None, transition(partial(Single().run, p, Values.shared(args)), dice, given)

        return run_for_each(one, c0, jnp.arange(self._particles), tau)[1]

    def _written(self, level: Any, site: Any, particle: Any) -> Any:
        table = self._read.values.get(())
        return jnp.zeros(jnp.shape(particle)) if table is None else table[level, site, particle]

    def noise(self, method: str, log_weights: Any) -> Noise:
        self.skip(1)
        count = RESAMPLERS[method].uniforms(log_weights.shape[0])
        uniforms, rotation = jax.tree.map(lambda x: x[self.used], self._read.noise)
        return Noise(jax.tree.map(lambda x: x[:count], uniforms), rotation)

    def noises(self, method: str, rows: Any) -> Noise:
        return jax.tree.map(lambda *xs: jnp.stack(xs), *(self.noise(method, row) for row in rows))


def outcomes(q: Program, args: Any, particles: int, *, most: float = float("inf")) -> list[Outcome] | None:
    """Return every outcome of a program in the vectorized engine; None, if there are more than `most`.

    Raises:
        ArgumentError: the program branches on what it sampled.
    """
    nothing = _tables([Script({}, {})], particles)
    abstractly(lambda key: Reading(particles, jax.tree.map(lambda x: x[0], nothing)).run(q, Values.shared(args)), q)
    probabilities, scripts = [], []
    for probability, script in _scripts(q, args, particles):
        probabilities.append(probability)
        scripts.append(script)
        if len(scripts) > most:
            return None

    def one(tables: Tables) -> Evaluation:
        e = Reading(particles, tables).run(q, Values.shared(args))
        return e.finished()

    size = next((size for size in BATCHES if size >= len(scripts)), BATCHES[-1])
    results: list[Evaluation] = []
    for start in range(0, len(scripts), size):
        rows = scripts[start : start + size]
        padded = [*rows, *rows[:1] * (size - len(rows))]
        batch = jax.tree.map(np.asarray, jax.vmap(one)(_tables(padded, particles)))
        results += [_row(batch, number) for number in range(len(rows))]
    return [Outcome(*pair) for pair in zip(probabilities, results, strict=True)]


def _row(batch: Evaluation, number: int) -> Evaluation:
    return jax.tree.map(lambda x: x[number], batch)


def _scripts(q: Program, args: Any, particles: int) -> Iterator[tuple[float, Script]]:
    engine, c0 = Writing(particles), Values.shared(args)
    for branch in branches():
        script = engine.along(branch, q, c0)
        yield branch.probability, script


def _tables(scripts: list[Script], particles: int) -> Tables:
    size = len(scripts), _room(level for s in scripts for level in _levels(s))
    sites = _room(site for s in scripts for _, site, _ in s.values)
    values: dict[tuple[int, ...], Any] = {}
    uniforms, rotations = np.zeros((*size, particles)), np.zeros(size, int)
    for row, script in enumerate(scripts):
        for (level, site, particle), value in script.values.items():
            shape = np.shape(value)
            if shape not in values:
                values[shape] = np.zeros((*size, sites, particles, *shape))
            values[shape][row, level, site, particle] = value
        for level, noise in script.noise.items():
            uniforms[row, level, : len(noise.uniforms)] = noise.uniforms
            rotations[row, level] = noise.rotation
    return jax.tree.map(jnp.asarray, Tables(values, Noise.from_uniforms(uniforms, rotations)))


def _room(numbers: Iterator[int]) -> int:
    """Return a length that has room for these numbers: one of few, for the same reason as `BATCHES`."""
    return max(8, 2 ** max(numbers, default=0).bit_length())


def _levels(script: Script) -> Iterator[int]:
    yield from (level for level, *_ in script.values)
    yield from script.noise
