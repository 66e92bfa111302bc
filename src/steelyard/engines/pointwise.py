"""The states of a program that is asked for its observations: the density of each, and the values."""

from typing import Any

import jax
import jax.numpy as jnp

from steelyard.distributions.densities import log_prob_terms, scaled
from steelyard.language.state import State
from steelyard.maps import select
from steelyard.types import Distribution


class PointwiseState(State):
    """A state that keeps the terms of which the log density at each observed address is the sum."""

    def observe(self, address: str, distribution: Distribution | Any, value: Any, *, scale: Any = 1.0) -> Any:
        value = super().observe(address, distribution, value, scale=scale)
        if self._present is not False:
            # Scaled and tempered like the density, so that they sum to it.
            terms = self._tempered(scaled(log_prob_terms(distribution, value), scale))
            self._terms[address] = select(self._present, terms, 0.0)
        return value


class ObservedState(State):
    """A state that keeps the value at each observed address."""

    def observe(self, address: str, distribution: Distribution | Any, value: Any, *, scale: Any = 1.0) -> Any:
        value = super().observe(address, distribution, value, scale=scale)
        if self._present is not False:
            self._terms[address] = jax.tree.map(jnp.asarray, value)
        return value
