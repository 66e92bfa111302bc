"""Which key a particle draws with: numbers for the programs that run, one after the other, and for their sites.

XLA on a CPU puts all the draws of a program into one loop. A long loop takes long to compile, and to run: a value that
is used twice may be drawn twice. The first numbers of many sites are therefore computed at once, apart from the rest.

Measured alone (`python -m benchmarks passes`): likelihood weighting with 60 variables takes 100 times as long without
it, and 3.6 times as long to compile.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from steelyard.compiler.draws import draw, is_normal
from steelyard.compiler.randomness import First, Kind, first_of, particle_key, scattered, threefry_key
from steelyard.compiler.segments import apart
from steelyard.types import Distribution, Key

# So many draws of single numbers are computed each where it is used, as fast as can be.
FEW = 12

# The first numbers of sites, of one particle or of all of them.
FirstWords: TypeAlias = dict[int, Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class LevelKeys:
    """The keys of one level: a function of particle and site, which may be an argument of compiled functions."""

    words: Any
    level: Any

    def __call__(self, particle: Any, site: Any = 0, first: First | None = None) -> Key:
        return particle_key(self.words, particle, self.level, site, first)


class KeyCounter:
    """A number for each primitive program or resampling that runs, in order, and the key that goes with it."""

    def __init__(self, key: Key) -> None:
        self._words = scattered(key)
        self._start: Any = 0
        self._count = 0

    @property
    def used(self) -> Any:
        """How many numbers were used."""
        return self._start + self._count

    def next(self) -> LevelKeys:
        """Return the key of the next level, as a function of particle and site."""
        self.skip(1)
        return LevelKeys(self._words, self.used)

    def skip(self, count: int) -> None:
        """Use up numbers."""
        self._count += count

    def mark(self) -> int:
        """Return the place that `rewind` goes back to."""
        return self._count

    def rewind(self, mark: int) -> None:
        """Use the same numbers again."""
        self._count = mark

    @contextmanager
    def counting(self, start: Any) -> Iterator[Callable[[], int]]:
        """Count from another number, and give a function that tells how many were used inside."""
        before = self._start, self._count
        self._start, self._count = start, 0
        inside = []
        try:
            yield lambda: inside[0]
        finally:
            inside.append(self._count)
            self._start, self._count = before


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["sites"])
@dataclass(frozen=True)
class Drawn:
    """The sites of a program that draw one number, by what they make it of."""

    sites: tuple[tuple[Kind, tuple[int, ...]], ...] = ()

    @property
    def many(self) -> bool:
        """Whether one hash for all of them is better than one for each."""
        return sum(len(sites) for _, sites in self.sites) > FEW


class Sites:
    """Draws the variables of one particle of one level."""

    def __init__(self, level: Callable[..., Key], particle: Any, first: FirstWords | None = None) -> None:
        self._level = level
        self._particle = particle
        self._first = first or {}
        self._kinds: dict[int, Kind] = {}

    def __call__(self, site: int, address: str, distribution: Distribution) -> Any:
        kind = "normal" if is_normal(distribution) else "bits"
        first = First(kind, self._first[site]) if site in self._first else None
        key = self._level(self._particle, site, first)
        try:
            value = draw(distribution, key)
        except NotImplementedError:
            # Some samplers of JAX, such as Poisson's, accept its own implementation of Threefry only.
            return draw(distribution, threefry_key(key))
        # Numbers of double precision take 64 bits.
        if isinstance(value, jax.Array) and value.size == 1 and jnp.result_type(float) == jnp.float32:
            self._kinds[site] = kind
        return value

    def drawn(self) -> Drawn:
        """Return what was drawn."""
        kinds = set(self._kinds.values())
        return Drawn(tuple((kind, tuple(s for s, k in self._kinds.items() if k == kind)) for kind in sorted(kinds)))


class LevelDraws:
    """How the particles of one level draw."""

    def __init__(self, level: Callable[..., Key]) -> None:
        self._level = level

    def __call__(self, particle: Any, first: FirstWords) -> Sites:
        return Sites(self._level, particle, first)

    def first(self, drawn: Drawn, particles: Any) -> FirstWords:
        """Return the first numbers of these sites, for all particles. The hash is compiled once for all of them."""

        def of(kind: Kind, sites: tuple[int, ...]) -> FirstWords:
            def one(site: Any, particle: Any) -> Any:
                return first_of(kind, self._level(particle, site))

            rows = apart(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(jnp.array(sites), particles)
            return {site: rows[i] for i, site in enumerate(sites)}

        return {site: word for kind, sites in drawn.sites for site, word in of(kind, sites).items()}
