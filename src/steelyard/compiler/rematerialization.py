"""What a loop keeps of each step for its gradient.

JAX keeps every intermediate array that a derivative needs. A large array that is little work takes longer to store and
to read again than to compute: it is computed again.

Measured alone (`python -m benchmarks passes`): the gradient of three sweeps of tracking needs 2.6 times the memory
without it.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from steelyard.compiler.segments import in_segments
from steelyard.language.programs import Scan

# Arrays of fewer numbers stay in the cache of a processor.
LARGE = 2**16
# Steps are traced without the batch axis; assume batches up to this size.
BATCH = 16

# Operations on each number by itself, and those that only move numbers. Products, sums, sorts and random numbers are
# kept, whatever their size.
_ARITHMETIC = "add sub mul div neg sign abs max min square integer_pow pow sqrt rsqrt"
_FUNCTIONS = "exp exp2 expm1 log log1p tanh logistic sin cos tan sinh cosh erf erfc"
_CHOICES = "select_n clamp eq ne lt le gt ge and or not is_finite stop_gradient convert_element_type copy"
_SHAPES = "broadcast_in_dim reshape transpose squeeze rev slice concatenate pad iota"
_CHEAP = frozenset(f"{_ARITHMETIC} {_FUNCTIONS} {_CHOICES} {_SHAPES}".split())


def rematerialized(q: Scan, passes: frozenset[str]) -> Callable[[ClosedJaxpr], Callable[..., Any]]:
    """Return how a function is made of the equations of a step of a scan."""
    if "rematerialization" not in passes:
        return in_segments if "segments" in passes else jaxpr_as_fun
    if q.remat and q.length > 1:
        return recomputing_everything
    return recomputing_cheap_arrays if q.unroll < q.length else in_segments


def recomputing_everything(step: ClosedJaxpr) -> Callable[..., Any]:
    """Return the function that these equations compute, whose gradient computes everything again."""
    return jax.checkpoint(in_segments(step), prevent_cse=False)


def recomputing_cheap_arrays(step: ClosedJaxpr) -> Callable[..., Any]:
    """Return the function that these equations compute, whose gradient computes large, cheap arrays again.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from steelyard.compiler.rematerialization import recomputing_cheap_arrays
        >>> equations = jax.make_jaxpr(lambda x: jnp.sum(jnp.tanh(x[:, None] + x[None])))(jnp.zeros(1000))
        >>> jax.grad(lambda x: recomputing_cheap_arrays(equations)(x)[0])(jnp.zeros(1000)).shape
        (1000,)
    """
    function = in_segments(step)
    outputs: list[Any] = [variable.aval for equation in step.jaxpr.eqns for variable in equation.outvars]
    if all(BATCH * math.prod(getattr(array, "shape", ())) < LARGE for array in outputs):
        return function
    return jax.checkpoint(function, policy=_is_kept, prevent_cse=False)


def _is_kept(operation: Any, *arrays: Any, **options: Any) -> bool:
    if operation.name not in _CHEAP:
        return True
    shapes = [options["shape"]] if "shape" in options else [array.shape for array in arrays]
    try:
        largest = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        largest = sum(map(math.prod, shapes))
    return largest < LARGE
