"""Many steps, one after the other: in a compiled loop, which may work in place, or in single calls."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.sharding import NamedSharding
from jaxtyping import Array, Int, PRNGKeyArray

from steelyard.training.history import History
from steelyard.training.step import Learner, Steps, is_finite

Step: TypeAlias = Callable[..., tuple[Learner, History]]
# Make so many steps with these data, or fewer, but at least one. Gives what was learned, and a row for each step, with
# a column for each field of the history.
Run: TypeAlias = Callable[[Learner, Any, int], tuple[Learner, Any]]

CONVOLUTION = "conv_general_dilated"
LOOPS = {"scan", "while"}
# With fewer parameters, those that are read again are still in the processor's cache.
MANY = 2**20


def runner(
    steps: Steps,
    equations: ClosedJaxpr,
    learner: Learner,
    key: PRNGKeyArray,
    capacity: int,
    placements: tuple[Any, Any] | None = None,
) -> Run:
    """Return the fastest way to make steps.

    XLA on a CPU has a fast convolution, but not in loops: a step of a small network takes 8 times as long there. With
    many parameters, to choose between new and old ones takes longer than the update: it is done in place.

    The ways may round differently. So the choice depends on the equations of a step, on the models at the start and on
    the kind of processor alone, never on a measurement: a run that goes on from a checkpoint ends with the same bits.

    Args:
        steps: one step, in two forms.
        equations: those of one step.
        learner: what there is before the first step.
        key: the key of the run.
        capacity: the largest number of steps that is asked for at once.
        placements: with a mesh, where what was learned is to be, and where what happened.
    """
    # Both come out of a step: what was learned, and the columns of the history.
    columns = len(equations.out_avals) - len(jax.tree.leaves(learner))
    if _is_on_a_cpu(learner if placements is None else placements):
        if has_convolution(equations):
            return _in_single_calls(steps.trainer.step, key, placements)
        many = placements is None and sum(x.size for x in jax.tree.leaves(learner.parameters)) >= MANY
        if many and is_finite(learner.parameters):
            return _in_place(steps.in_place, key, (capacity, columns))
    return _in_a_loop(steps.trainer.loop, key, (capacity, columns), placements)


def _is_on_a_cpu(learner: Any) -> bool:
    """Tell whether what was learned, or the place where it is to be, is the memory of a CPU: the steps run there."""
    leaves = jax.tree.leaves(learner)
    devices = {device for x in leaves if isinstance(x, jax.Array) for device in x.devices()}
    devices |= {device for x in leaves if isinstance(x, NamedSharding) for device in x.device_set}
    return {device.platform for device in devices or jax.local_devices()} == {"cpu"}


def has_convolution(equations: ClosedJaxpr) -> bool:
    """Tell whether there is a convolution that is not in a loop already."""
    return any(equation.primitive.name == CONVOLUTION for equation in _outside_of_loops(equations.jaxpr))


def _outside_of_loops(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name not in LOOPS:
            for part in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
                if _is_jaxpr(part):
                    yield from _outside_of_loops(part.jaxpr if isinstance(part, ClosedJaxpr) else part)


def _is_jaxpr(x: Any) -> bool:
    return isinstance(x, Jaxpr | ClosedJaxpr)


def _in_a_loop(loop: Any, key: PRNGKeyArray, shape: tuple[int, int], placements: tuple[Any, Any] | None) -> Run:
    # The number of steps is not known when this is compiled: one program serves all, so that it does not matter for
    # the result where one call ends and the next begins. The data are an argument: constants slow the compiler.
    def many(
        step: Step, learner: Learner, key: PRNGKeyArray, data: Any, count: Int[Array, ""]
    ) -> tuple[Learner, Array]:
        def body(i: Any, carry: tuple[Learner, Array]) -> tuple[Learner, Array]:
            learner, now = step(carry[0], key, data)
            return learner, carry[1].at[i].set(_row(now))

        return jax.lax.fori_loop(0, count, body, (learner, jnp.zeros(shape)))

    run = jax.jit(lambda learner, data, count: loop(many)(learner, key, data, count), out_shardings=placements)

    def trimmed(learner: Learner, data: Any, count: int) -> tuple[Learner, Any]:
        learner, rows = jax.block_until_ready(run(learner, data, np.asarray(count, np.int32)))
        rows = np.asarray(rows)
        # Seeds come first out of a loop, and last in a history.
        return learner, (rows if rows.ndim == 2 else np.moveaxis(rows, 0, -1))[:count]

    return trimmed


def _in_place(step: Callable[..., tuple[Learner, History, Any]], key: PRNGKeyArray, shape: tuple[int, int]) -> Run:
    """Make steps until one is spoiled. That is rare: then make those before it again, and leave it out."""

    @jax.jit
    def run(learner: Learner, data: Any, count: Int[Array, ""]) -> tuple[Any, Learner, Array, Any]:
        def body(carry: tuple[Any, Learner, Array, Any]) -> tuple[Any, Learner, Array, Any]:
            i, learner, rows, _ = carry
            learner, now, spoiled = step(learner, key, data)
            return i + 1, learner, rows.at[i].set(_row(now)), spoiled

        start = jnp.zeros((), jnp.int32), learner, jnp.zeros(shape), jnp.asarray(False)
        return jax.lax.while_loop(lambda carry: (carry[0] < count) & ~carry[3], body, start)

    def until_spoiled(learner: Learner, data: Any, count: int) -> tuple[Learner, Any]:
        made, learned, rows, spoiled = jax.block_until_ready(run(learner, data, jnp.asarray(count, jnp.int32)))
        if spoiled:
            _, learned, _, _ = run(learner, data, made - 1)
            learned = jax.block_until_ready(learned._replace(step=learned.step + 1))
        return learned, np.asarray(rows)[: int(made)]

    return until_spoiled


def _in_single_calls(step: Step, key: PRNGKeyArray, placements: tuple[Any, Any] | None = None) -> Run:
    def one(learner: Learner, data: Any) -> tuple[Learner, Array]:
        learner, now = step(learner, key, data)
        return learner, _row(now)

    call = jax.jit(one, donate_argnums=0, out_shardings=placements)

    def run(learner: Learner, data: Any, count: int) -> tuple[Learner, Any]:
        # A copy, because each call takes the memory of what it is given. The caller keeps what was learned before: it
        # is the result, if Ctrl-C comes here.
        learner, rows = jax.tree.map(jnp.copy, learner), []
        for _ in range(count):
            learner, row = call(learner, data)
            rows.append(row)
        return jax.block_until_ready(learner), np.stack(rows)

    return run


def _row(now: History) -> Array:
    return jnp.stack(jax.tree.leaves(now))
