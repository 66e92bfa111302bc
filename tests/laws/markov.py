"""Finite Markov kernels and bijections, as data."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class At(NamedTuple):
    """Where a chain is."""

    position: dict[str, Any]


@dataclass(frozen=True)
class HeatBath:
    """Draws one variable from its conditional distribution: the Gibbs sampler, in BlackJAX's protocol.

    `tilted`, it is wrong: it does not leave the density invariant.
    """

    address: str
    size: int
    tilted: bool = False

    def __call__(self, log_density: Any) -> tuple[Any, Any]:
        def step(key: Any, state: At) -> tuple[At, None]:
            present = state.position[self.address]
            places = [{**state.position, self.address: jnp.full_like(present, x)} for x in range(self.size)]
            logits = jnp.stack([log_density(place) for place in places])
            possible = jnp.max(logits) > -jnp.inf
            weights = jnp.exp(logits - jnp.where(possible, jnp.max(logits), 0.0))
            if self.tilted:
                weights = weights * jnp.arange(1, self.size + 1)
            # From where nothing is possible it does not move.
            stay = jnp.arange(self.size) == present
            weights = jnp.where(possible, weights, stay)
            probabilities = weights / jnp.maximum(jnp.sum(weights), 1e-300)
            # What is beyond the values that it knows stays there.
            known = (present >= 0) & (present < self.size)
            chosen = _choose(key, jnp.where(known, probabilities, jnp.arange(self.size) == 0))
            return At({**state.position, self.address: jnp.where(known, chosen, present).astype(present.dtype)}), None

        return lambda position: At(jax.tree.map(jnp.asarray, position)), step


def _choose(key: Any, probabilities: Any) -> Any:
    if hasattr(key, "roll"):
        return key.roll(probabilities)
    return jnp.sum(jax.random.uniform(key) >= jnp.cumsum(probabilities)[:-1])


@dataclass(frozen=True)
class Turn:
    """x -> x + by, modulo the number of values; what is outside of them stays."""

    size: int
    by: int = 1

    def forward(self, x: Any) -> Any:
        return self._turned(x, self.by)

    def inverse(self, y: Any) -> Any:
        return self._turned(y, -self.by)

    def log_det(self, x: Any) -> Any:
        return 0.0

    def _turned(self, x: Any, by: int) -> Any:
        if not isinstance(x, jax.core.Tracer):
            return (int(x) + by) % self.size if 0 <= int(x) < self.size else int(np.asarray(x))
        return jnp.where((x >= 0) & (x < self.size), (x + by) % self.size, x)
