"""Independent draws of one distribution, for libraries whose distributions cannot be expanded in one common way."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from steelyard.distributions.distribution import sample
from steelyard.types import Key


@dataclass(frozen=True)
class Repeated:
    """So many independent draws, with these axes in front."""

    distribution: Any
    rows: tuple[int, ...]

    def sample(self, key: Key) -> Any:
        """Draw all of them."""
        draw = partial(sample, self.distribution)
        for _ in self.rows:
            draw = jax.vmap(draw)
        return draw(jax.random.split(key, self.rows))

    def log_prob(self, value: Any) -> Any:
        """Return their log densities."""
        log_prob = self.distribution.log_prob
        for _ in self.rows:
            log_prob = jax.vmap(log_prob)
        return log_prob(value)
