"""Log densities written without any library of distributions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def log_normal(x: Any, mean: Any, scale: Any) -> Any:
    return -0.5 * ((x - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * np.log(2 * np.pi)


def log_bernoulli(value: Any, logits: Any) -> Any:
    return jax.nn.log_sigmoid((2 * value - 1) * logits)
