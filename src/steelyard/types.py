"""The shapes that arrays have here, named once.

The particle axis is always the first axis of an array in an `Evaluation`, and is never inferred from a size.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

Key: TypeAlias = PRNGKeyArray
Scalar: TypeAlias = Float[Array, ""] | Float[np.ndarray, ""] | float
LogWeights: TypeAlias = Float[Array, "... particles"] | Float[np.ndarray, "... particles"]
Ancestors: TypeAlias = Int[Array, "..."] | Int[np.ndarray, "..."]
# In the universal engine arrays are NumPy's.
Mask: TypeAlias = bool | Bool[Array, "..."] | Bool[np.ndarray, "..."]
Value: TypeAlias = Shaped[Array, "..."] | Any

Method: TypeAlias = Literal["systematic", "stratified", "multinomial", "residual"]
EngineName: TypeAlias = Literal["vectorized", "universal"]

Function: TypeAlias = Callable[..., Any]
# A number of particles, steps and the like, which may come out of an array.
Count: TypeAlias = int | np.integer[Any]


def is_traced(x: Any) -> bool:
    """Tell whether the value is not known yet, because JAX is tracing."""
    return isinstance(x, Tracer)


def is_staged() -> bool:
    """Tell whether what runs now will be compiled as a whole: inside of `jit`, or of a loop."""
    return is_traced(jnp.zeros(()))


@runtime_checkable
class Distribution(Protocol):
    """Anything that can be sampled from and that has a log density.

    `sample` takes a key (NumPyro), or has a parameter `seed` (TFP, Distrax).
    """

    @property
    def sample(self) -> Callable[..., Any]: ...

    def log_prob(self, value: Any, /) -> Any: ...


def stop_gradient(tree: Any, really: bool = True) -> Any:
    """Return a tree whose arrays carry no gradient."""
    if not really:
        return tree
    # What is known already carries none.
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if is_traced(x) else x, tree)
