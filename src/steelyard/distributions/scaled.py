"""A distribution whose log density is multiplied by a number, and random bits, which are no function of anything."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from steelyard.types import Key


class Scaled(dist.Distribution):
    """A distribution to the power of a scale, entry by entry. Its draws are those of the distribution itself.

    Where the density is zero, a negative power counts as one: the power is that of a factor next to the density.
    """

    pytree_data_fields = ("base_dist", "scale")

    def __init__(self, base_dist: dist.Distribution, scale: Any) -> None:
        self.base_dist = base_dist
        self.scale = scale
        super().__init__(base_dist.batch_shape, base_dist.event_shape)

    @property
    def support(self) -> Any:
        """The support of the distribution inside."""
        return self.base_dist.support

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw from the distribution inside."""
        return self.base_dist.sample(key, sample_shape)

    def log_prob(self, value: Any, intermediates: Any = None) -> Any:
        """Return the scaled log density."""
        density = self.base_dist.log_prob(value)
        return jnp.where((density == -jnp.inf) & (self.scale < 0), 0.0, density) * self.scale


class RandomBits:
    """The bits of a key. Their density is one with respect to the uniform distribution of keys, and has no gradient."""

    has_rsample = True

    def sample(self, key: Key) -> Any:
        """Draw the data of a Threefry key."""
        return jax.random.bits(key, (2,), "uint32")

    def log_prob(self, value: Any) -> Any:
        """Return zero."""
        return jnp.zeros(())
