"""What a loop keeps of each step for its gradient.

JAX keeps every intermediate array that a derivative needs. A large array that is little work takes longer to store and
to read again than to compute: it is computed again.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

# Arrays of fewer numbers stay in the cache of a processor.
LARGE = 2**16

# Operations on each number by itself, and those that only move numbers. Products, sums, sorts and random numbers are
# kept, whatever their size.
_ARITHMETIC = "add sub mul div neg sign abs max min square integer_pow pow sqrt rsqrt"
_FUNCTIONS = "exp exp2 expm1 log log1p tanh logistic sin cos tan sinh cosh erf erfc"
_CHOICES = "select_n clamp eq ne lt le gt ge and or not is_finite stop_gradient convert_element_type copy"
_SHAPES = "broadcast_in_dim reshape transpose squeeze rev slice concatenate pad iota"
_CHEAP = frozenset(f"{_ARITHMETIC} {_FUNCTIONS} {_CHOICES} {_SHAPES}".split())


def keeping_little(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step of a loop that is the same, and whose gradient computes large, cheap arrays again.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from steelyard.semantics.residuals import keeping_little
        >>> step = keeping_little(lambda x: jnp.sum(jnp.tanh(x[:, None] + x)))
        >>> jax.grad(step)(jnp.zeros(1000)).shape
        (1000,)
    """
    return jax.checkpoint(step, policy=_is_kept, prevent_cse=False)


def _is_kept(operation: Any, *arrays: Any, **options: Any) -> bool:
    if operation.name not in _CHEAP:
        return True
    shapes = [options["shape"]] if "shape" in options else [array.shape for array in arrays]
    try:
        largest = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        largest = sum(map(math.prod, shapes))
    return largest < LARGE
