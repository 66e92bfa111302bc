"""The state of a program that predicts: what it observes is drawn anew."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from steelyard.arguments import check_scale
from steelyard.distributions.distribution import check_observed, sample
from steelyard.distributions.repeated import Repeated
from steelyard.errors import AddressError, ArgumentError
from steelyard.language.state import State
from steelyard.maps import select
from steelyard.types import Distribution


class PredictiveState(State):
    """A state that draws what is observed, in the shape of what was observed, and keeps the draws by address.

    The value None stands for data that are not known: one draw of the distribution is made.
    """

    def observe(self, address: str, distribution: Distribution | Any, value: Any, *, scale: Any = 1.0) -> Any:
        self._enter(address, distribution)
        check_scale(scale, f"{self._place}: {address!r}")
        self._site += 1
        if value is not None:
            value = check_observed(distribution, value, address, self._place)
            distribution = self._repeated(address, distribution, value)
        if self._present is False:
            return self._predicted(address, distribution, lambda: _any(distribution)) if value is None else value
        drawn = self._predicted(address, distribution, lambda: self._draw(self._site, address, distribution))
        if self._present is not True:
            fixed = self._predicted(address, distribution, lambda: _any(distribution)) if value is None else value
            drawn = select(self._present, drawn, fixed)
        # The density is not asked for; but where it is, the address is known to the rules.
        self._record(address, 0.0)
        self._terms[address] = drawn
        return drawn

    def keep(self, address: str, value: Any) -> None:
        """Keep what a program computes from its variables with the predictions; it has no density."""
        self._claim(address)
        if self._present is not False:
            self._terms[address] = jax.tree.map(jnp.asarray, value)
        if self._present is not True:
            self._masks[address] = self._present

    def _repeated(self, address: str, distribution: Any, value: Any) -> Any:
        """Return the distribution of as many draws as there are rows of data."""
        one = self._predicted(address, distribution, lambda: jax.eval_shape(lambda: _any(distribution)))
        if jax.tree.structure(one) != jax.tree.structure(0):
            return distribution
        rows, event = np.shape(value)[: np.ndim(value) - len(one.shape)], one.shape
        if (*rows, *event) != np.shape(value):
            raise AddressError(
                f"{self._place}: the value observed at {address!r} has shape {np.shape(value)}, but a draw from the "
                f"distribution there has shape {event}. Bring one to the shape of the other."
            )
        if not rows:
            return distribution
        return (
            distribution.expand(rows) if isinstance(distribution, dist.Distribution) else Repeated(distribution, rows)
        )

    def _predicted(self, address: str, distribution: Any, draw: Callable[[], Any]) -> Any:
        try:
            return draw()
        except NotImplementedError as error:
            raise ArgumentError(
                f"{self._place}: what is observed at {address!r} has the distribution {type(distribution).__name__}, "
                f"which cannot be drawn from, so that it cannot be predicted. Use one that has sample(key)."
            ) from error


def _any(distribution: Any) -> Any:
    return sample(distribution, jax.random.key(0))
