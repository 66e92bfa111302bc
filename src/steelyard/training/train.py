"""`train`: minimise the loss of an inference program."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from steelyard.errors import ArgumentError
from steelyard.language.programs import Programmable
from steelyard.particles.randomness import keys_of_rows
from steelyard.semantics.arguments import check_key
from steelyard.semantics.evaluate import evaluate
from steelyard.semantics.levels import Objective
from steelyard.training.checkpoints import Checkpoints
from steelyard.training.progress import reporter

MOST_STEPS_AT_ONCE = 10_000
SECONDS_AT_ONCE = 0.5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class History:
    """What happened at each step.

    Attributes:
        loss: the loss, averaged over the minibatch.
        log_z: the estimate of log Z, averaged likewise.
        ess: the effective sample size, averaged likewise.
        gradient_norm: the Euclidean norm of the gradient.
        skipped: whether the loss, its gradient or the update was not finite, so that no update was made.

    Example:
        >>> import jax, optax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(3.0, 1.0))
        >>> program = lambda m: sy.algorithms.svi(model, lambda s: s.sample("z", dist.Normal(m, 1.0)))
        >>> result = sy.train(program, 0.0, optimizer=optax.adam(0.1), steps=5, key=jax.random.key(0), particles=10,
        ...                   progress=False)
        >>> result.history.loss.shape
        (5,)
    """

    loss: Float[Array, " steps"]
    log_z: Float[Array, " steps"]
    ess: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]
    skipped: Bool[Array, " steps"]

    @classmethod
    def empty(cls, steps: int) -> "History":
        """Return a history of steps that are still to be made."""
        zeros = jnp.zeros(steps)
        return cls(zeros, zeros, zeros, zeros, jnp.zeros(steps, bool))

    def __len__(self) -> int:
        return self.loss.shape[0]


class TrainResult(NamedTuple):
    """What training gave.

    Attributes:
        models: the models with the parameters that were learned.
        history: what happened at each step that was made.
        interrupted: whether training ended before all steps were made, by Ctrl-C or by the callback.

    Example:
        >>> import steelyard as sy
        >>> sy.TrainResult._fields
        ('models', 'history', 'interrupted')
    """

    models: Any
    history: History
    interrupted: bool = False


class _Learner(NamedTuple):
    """All that a step changes."""

    parameters: Any
    optimizer: Any
    step: Int[Array, ""]


def train(
    program: Callable[..., Programmable],
    models: PyTree,
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    key: PRNGKeyArray,
    particles: int,
    objective: Objective | None = None,
    data: PyTree | None = None,
    batch_size: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool = True,
    callback: Callable[[TrainResult], bool | None] | None = None,
) -> TrainResult:
    """Train the models of an inference program by gradient descent on its loss.

    Steps run in compiled loops, not one dispatch each. A step whose loss, gradient or update is not finite changes
    nothing, and is counted. The result depends on the arguments and on the key alone: not on interruptions, nor on the
    machine's speed.

    Args:
        program: `program(models, *datum) -> q`, which builds the inference program of one datum from the models.
        models: any pytree: Equinox modules, Flax NNX modules, dictionaries of arrays. Its floating-point arrays learn.
        optimizer: an optimiser of optax; schedules are part of it.
        steps: how many steps in all, those of an earlier, interrupted run included.
        key: a key of `jax.random.key`.
        particles: how many particles for each datum.
        objective: what every propose that has no objective of its own contributes to the loss.
        data: a pytree of arrays, or a tuple of such, whose first axis is the datum; None, if there is no data.
        batch_size: how many data in a step, drawn with replacement; all of them in every step, if None.
        checkpoint: a directory. If it holds a checkpoint of this run, training goes on from there.
        checkpoint_seconds: how often to write one.
        progress: whether to show a progress bar, or lines where there is no terminal.
        callback: called now and then with the result so far; training stops if it returns True.

    Returns:
        The trained models and the history. After Ctrl-C, what was learned until then.

    Raises:
        ArgumentError: an argument does not make sense; or nothing contributes to the loss.
        CheckpointError: the directory holds something else, or something damaged. It is left as it is.

    Example:
        >>> import jax, optax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), x)
        >>> def program(guide, x):
        ...     def proposal(s): s.sample("z", dist.Normal(guide["slope"] * x, 0.7))
        ...     return sy.algorithms.svi(lambda s: model(s, x), proposal)
        >>> result = sy.train(program, {"slope": 0.0}, optimizer=optax.adam(0.05), steps=200, key=jax.random.key(0),
        ...                   particles=10, data=jax.random.normal(jax.random.key(1), (50,)), progress=False)
        >>> bool(abs(result.models["slope"] - 0.5) < 0.1)
        True
    """
    rows = _rows(data)
    _check(steps, batch_size, rows)
    data = jax.tree.map(jnp.asarray, data)
    check_key(key, "train")
    models = jax.tree.map(lambda x: jnp.asarray(x, float) if isinstance(x, float) else x, models)
    parameters, static = eqx.partition(models, eqx.is_inexact_array)
    if not jax.tree.leaves(parameters):
        raise ArgumentError("train: the models have nothing to learn: no array of floating-point numbers.")

    def batch_loss(parameters: Any, key: PRNGKeyArray, data: Any) -> tuple[Any, tuple[Any, Any]]:
        trained = eqx.combine(parameters, static)

        def one(key: PRNGKeyArray, *datum: Any) -> tuple[Any, Any, Any]:
            out = evaluate(program(trained, *datum), key, particles=particles, objective=objective)
            if not isinstance(out.loss, jax.Array):
                raise ArgumentError(
                    "train: nothing contributes to the loss. Give an objective, as objective=sy.objectives.elbo, "
                    "or build the program with one, propose(p, q, objective=...)."
                )
            return out.loss, out.log_z, out.ess

        if data is None:
            loss, *others = one(key)
        else:
            chosen, size = _minibatch(data, rows, batch_size, key)
            keys = keys_of_rows(jax.random.fold_in(key, 1), size)
            loss, *others = (x.mean() for x in jax.vmap(one)(keys, *chosen))
        return loss, tuple(others)

    def step(learner: _Learner, data: Any) -> tuple[_Learner, History]:
        gradient = jax.value_and_grad(batch_loss, has_aux=True)
        (loss, (log_z, ess)), gradients = gradient(learner.parameters, jax.random.fold_in(key, learner.step), data)
        norm = optax.tree.norm(gradients)
        updates, state = optimizer.update(gradients, learner.optimizer, learner.parameters)
        updated = optax.apply_updates(learner.parameters, updates), state
        unchanged = learner.parameters, learner.optimizer
        good = jnp.isfinite(loss) & jnp.isfinite(norm) & _is_sound(updated[0], learner.parameters)
        parameters, state = jax.tree.map(lambda new, old: jnp.where(good, new, old), updated, unchanged)
        return _Learner(parameters, state, learner.step + 1), History(loss, log_z, ess, norm, ~good)

    # The number of steps is not known when this is compiled: one program serves all, so that it does not matter for
    # the result where one call ends and the next begins. The data are an argument: constants slow the compiler.
    @jax.jit
    def run(learner: _Learner, data: Any, count: Int[Array, ""]) -> tuple[_Learner, Array]:
        def body(i: Any, carry: tuple[_Learner, Array]) -> tuple[_Learner, Array]:
            learner, now = step(carry[0], data)
            return learner, carry[1].at[i].set(jnp.stack(jax.tree.leaves(now)))

        capacity = min(steps, MOST_STEPS_AT_ONCE)
        return jax.lax.fori_loop(0, count, body, (learner, jnp.zeros((capacity, len(fields(History))))))

    learner = _strong(_Learner(parameters, optimizer.init(parameters), jnp.zeros((), jnp.int32)))
    # A wrong program is found at once.
    jax.eval_shape(step, learner, data)
    # One name for both, so that Ctrl-C finds the parameters and the history of the same step.
    so_far = learner, History.empty(0)
    store = None if checkpoint is None else Checkpoints(checkpoint, _identity(learner, key, particles, batch_size))
    if store is not None and (found := store.load(lambda done: (learner, History.empty(done)), steps)) is not None:
        so_far = found[0], jax.tree.map(np.asarray, found[1])

    def result(interrupted: bool) -> TrainResult:
        learner, history = so_far
        return TrainResult(eqx.combine(learner.parameters, static), history, interrupted)

    stopped, count, saved = False, 16, time.monotonic()
    with reporter(steps, progress) as report:
        try:
            if done := len(so_far[1]):
                report(so_far[1])
            while done < steps and not stopped:
                count = min(count, steps - done, MOST_STEPS_AT_ONCE)
                began = time.monotonic()
                learner, now = jax.block_until_ready(run(so_far[0], data, jnp.asarray(count, jnp.int32)))
                # The first time is mostly that of compiling.
                pace = (time.monotonic() - began) / count if done else 0.0
                so_far = learner, _join(so_far[1], now, count)
                done = len(so_far[1])
                report(so_far[1])
                if store is not None and time.monotonic() - saved > checkpoint_seconds:
                    store.save(done, so_far)
                    saved = time.monotonic()
                stopped = callback is not None and callback(result(False)) is True
                count = max(1, min(4 * count, int(SECONDS_AT_ONCE / max(pace, 1e-9))))
        except KeyboardInterrupt:
            stopped = True
    if store is not None:
        # Ctrl-C waits until the checkpoint is written; then there is nothing left to interrupt.
        with suppress(KeyboardInterrupt):
            store.save(len(so_far[1]), so_far)
    return result(stopped and len(so_far[1]) < steps)


def _strong(tree: Any) -> Any:
    """Return arrays of types of their own, as a step gives them: weak ones would have the steps compiled twice."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), tree)


def _is_sound(parameters: Any, before: Any) -> Bool[Array, ""]:
    """Tell whether the parameters are finite; those that were not so before, as in a mask, may stay as they were."""
    sound = jax.tree.map(lambda new, old: jnp.all(jnp.isfinite(new) | (new == old)), parameters, before)
    return jnp.all(jnp.stack(jax.tree.leaves(sound)))


def _join(history: History, now: Array, count: int) -> History:
    columns = jax.tree.unflatten(jax.tree.structure(history), list(np.asarray(now)[:count].T))
    return jax.tree.map(lambda before, after: np.concatenate([before, after.astype(before.dtype)]), history, columns)


def _rows(data: Any) -> int | None:
    if data is None:
        return None
    sizes = {np.shape(x)[:1] for x in jax.tree.leaves(data)}
    if len(sizes) != 1 or sizes == {()}:
        raise ArgumentError(
            f"train: the arrays of data must have one first axis, the datum; their shapes are "
            f"{[np.shape(x) for x in jax.tree.leaves(data)]}."
        )
    return sizes.pop()[0]


def _minibatch(data: Any, rows: int | None, batch_size: int | None, key: PRNGKeyArray) -> tuple[tuple[Any, ...], int]:
    """Return the data of a step, one tuple entry for each argument of the program, and how many they are."""
    datum = data if isinstance(data, tuple) else (data,)
    if rows is None or batch_size is None:
        return datum, rows or 0
    chosen = jax.random.randint(jax.random.fold_in(key, 0), (batch_size,), 0, rows)
    return jax.tree.map(lambda x: x[chosen], datum), batch_size


def _check(steps: int, batch_size: int | None, rows: int | None) -> None:
    if not _is_count(steps):
        raise ArgumentError(f"train: steps is a positive number, got {steps!r}.")
    if rows == 0:
        raise ArgumentError("train: data is empty.")
    if batch_size is not None and (rows is None or not _is_count(batch_size)):
        raise ArgumentError(f"train: batch_size={batch_size!r} needs data, and is a positive number.")


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _identity(learner: _Learner, key: Any, particles: int, batch_size: int | None) -> dict[str, Any]:
    """Return what tells this run from another one."""
    arrays = jax.tree.leaves_with_path(learner)
    return {
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "particles": particles,
        "batch_size": batch_size,
        "arrays": [f"{jax.tree_util.keystr(path)} {x.dtype}{list(x.shape)}" for path, x in arrays],
    }
