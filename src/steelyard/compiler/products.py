"""Products of a matrix that particles share, such as the weights of a layer, with vectors of their own.

The gradient of the matrix is a sum over particles, g^T x. Of the two, JAX always names g first, and that one XLA
transposes on a CPU, or it resorts to a routine that is slower still. The matrix of a layer with few inputs and many
outputs has a large g and a small x. Here the smaller of them is transposed: the same sums, in less time.

Measured alone (`python -m benchmarks passes`): a training step of annealed variational inference takes
1.15 times as long without it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Jaxpr, JaxprEqn
from jax.lax import dot_general, optimization_barrier

from steelyard.compiler.equations import reach

# Beyond so many rows copies cost more, and it depends on what is around a product which form is faster.
MOST_ROWS = 256


def with_fast_gradients(own: int) -> Callable[[Jaxpr], Jaxpr]:
    """Return the rewrite of products of a shared matrix, in equations whose first `own` inputs are the particles'.

    Other inputs, and what is computed from nothing else, are shared. Products stay what they are, and so do their
    derivatives, up to rounding.
    """

    def rewrite(jaxpr: Jaxpr) -> Jaxpr:
        marks = reach(jaxpr, dict.fromkeys(jaxpr.invars[:own], frozenset(["own"])))
        equations = []
        for equation in jaxpr.eqns:
            owned = [bool(marks(atom)) for atom in equation.invars]
            equations.append(_rewritten(equation, owned.index(False)) if _is_product(equation, owned) else equation)
        return jaxpr.replace(eqns=equations)

    return rewrite


def _is_product(equation: JaxprEqn, owned: list[bool]) -> bool:
    """Tell whether this is the product of one matrix that is shared, and of something that is not."""
    if equation.primitive.name != "dot_general" or sum(owned) != 1:
        return False
    contracted, batch = equation.params["dimension_numbers"]
    arrays: list[Any] = [atom.aval for atom in (*equation.invars, *equation.outvars)]
    matrix, vectors = (arrays[owned.index(flag)] for flag in (False, True))
    return (
        matrix.ndim == vectors.ndim == 2
        and len(contracted[0]) == 1
        and not any(batch)
        and vectors.size <= MOST_ROWS * matrix.shape[contracted[owned.index(False)][0]]
        and equation.params["out_sharding"] is None
        and len({array.dtype for array in arrays}) == 1
        and jnp.issubdtype(matrix.dtype, jnp.floating)
    )


def _rewritten(equation: JaxprEqn, shared: int) -> JaxprEqn:
    (axes, _), precision = equation.params["dimension_numbers"], equation.params["precision"]
    function = partial(_product, shared, (axes[0][0], axes[1][0]), precision)
    (call,) = jax.make_jaxpr(function)(*(atom.aval for atom in equation.invars)).jaxpr.eqns
    return call.replace(invars=equation.invars, outvars=equation.outvars)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _product(shared: int, axes: tuple[int, int], precision: Any, x: Any, y: Any) -> Any:
    """Return the sum of products over one axis of each; x, if `shared` is 0, and else y, is a matrix that is shared."""
    return dot_general(x, y, (((axes[0],), (axes[1],)), ((), ())), precision=precision)


@partial(_product.defjvp, symbolic_zeros=True)
def _derivative(shared: int, axes: tuple[int, int], precision: Any, primals: Any, tangents: Any) -> Any:
    own, changes = 1 - shared, []
    if not isinstance(tangents[own], SymbolicZero):
        pair = (tangents[0], primals[1]) if own == 0 else (primals[0], tangents[1])
        changes.append(_product(shared, axes, precision, *pair))
    if not isinstance(tangents[shared], SymbolicZero):
        matrix = jnp.moveaxis(tangents[shared], axes[shared], 0)
        rows = _rows_times(jnp.moveaxis(primals[own], axes[own], 1), matrix, precision)
        changes.append(rows if own == 0 else rows.T)
    return _product(shared, axes, precision, *primals), sum(changes[1:], start=changes[0])


def _rows_times(rows: Any, matrix: Any, precision: Any) -> Any:
    """Return rows @ matrix; on a CPU, in a form whose gradient with respect to the matrix transposes the smaller array.

    XLA would undo a transposition next to a product; a barrier keeps it.
    """
    inputs, outputs = matrix.shape
    if 2 * inputs > outputs:
        product = dot_general(matrix, rows, (((0,), (1,)), ((), ())), precision=precision)
        return jax.lax.platform_dependent(product, cpu=optimization_barrier, default=lambda x: x).T

    def plain(columns: Any, matrix: Any) -> Any:
        return dot_general(columns, matrix, (((0,), (0,)), ((), ())), precision=precision)

    def on_a_cpu(columns: Any, matrix: Any) -> Any:
        # Appending zero rows batches the matrix under vmap: one gradient per element, then a sum.
        nothing = jnp.broadcast_to(columns[:1, :0].T, (0, outputs))
        return plain(optimization_barrier(columns), optimization_barrier(jnp.concatenate([matrix, nothing])))

    return jax.lax.platform_dependent(rows.T, matrix, cpu=on_a_cpu, default=plain)
