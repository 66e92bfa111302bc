"""Which key a particle draws with: numbers for the programs that run, one after the other, and for their sites."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from steelyard.compiler.draws import draw
from steelyard.particles.randomness import particle_key, scattered, threefry_key
from steelyard.types import Distribution, Key


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

    def next(self) -> Callable[..., Key]:
        """Return the key of the next level, as a function of particle and site."""
        self.skip(1)
        words, level = self._words, self.used
        return lambda particle, site=0: particle_key(words, particle, level, site)

    def skip(self, count: int) -> None:
        """Use up numbers."""
        self._count += count

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


class Sites:
    """Draws the variables of one particle of one level."""

    def __init__(self, level: Callable[..., Key], particle: Any) -> None:
        self._level = level
        self._particle = particle

    def __call__(self, site: int, address: str, distribution: Distribution) -> Any:
        key = self._level(self._particle, site)
        try:
            return draw(distribution, key)
        except NotImplementedError:
            # Some samplers of JAX, such as Poisson's, accept its own implementation of Threefry only.
            return draw(distribution, threefry_key(key))
