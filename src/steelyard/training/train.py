"""`train`: minimise the loss of an inference program."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from steelyard.arguments import check_count, check_objective
from steelyard.errors import ArgumentError
from steelyard.language.programs import Programmable
from steelyard.semantics.levels import Objective
from steelyard.training.history import History, TrainResult
from steelyard.training.identity import identity
from steelyard.training.layout import Layout, layout_of
from steelyard.training.minibatches import check_epochs, rows_of
from steelyard.training.parameters import Trainable
from steelyard.training.processes import processes_of
from steelyard.training.progress import reporter
from steelyard.training.runs import runner
from steelyard.training.step import Steps, steps_of
from steelyard.training.storage import opened
from steelyard.types import Count

MOST_STEPS_AT_ONCE = 10_000
SECONDS_AT_ONCE = 0.5


def train(
    program: Callable[..., Programmable],
    models: PyTree,
    *,
    optimizer: optax.GradientTransformation,
    steps: Count,
    key: PRNGKeyArray,
    particles: Count,
    objective: Objective | None = None,
    data: PyTree | None = None,
    batch_size: Count | None = None,
    replacement: bool = True,
    trainable: Trainable = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool = True,
    callback: Callable[[TrainResult], bool | None] | None = None,
    mesh: Mesh | None = None,
) -> TrainResult:
    """Train the models of an inference program by gradient descent on its loss.

    Steps run in compiled loops, not one dispatch each; those with convolutions on a CPU, where XLA is slow in loops, in
    single calls. A step whose loss, gradient or update is not finite changes nothing, and is counted. The result
    depends on the arguments and on the key alone: not on interruptions, nor on the machine's speed.

    Args:
        program: `program(models, *datum) -> q`, which builds the inference program of one datum from the models.
        models: any pytree: Equinox modules, Flax NNX modules, dictionaries of arrays. Its floating-point arrays learn;
            of NNX variables, those of type `nnx.Param`. A program may not change them, as a BatchNorm does that still
            collects its statistics: see what the error says.
        optimizer: an optimiser of optax; schedules are part of it.
        steps: how many steps in all, those of an earlier, interrupted run included.
        key: a key of `jax.random.key`.
        particles: how many particles for each datum.
        objective: what every propose that has no objective of its own contributes to the loss.
        data: a pytree of arrays, or a tuple of such, whose first axis is the datum; None, if there is no data.
        batch_size: how many data in a step; all of them in every step, if None.
        replacement: whether these are drawn from all data, with replacement. Else they are the next ones of an epoch,
            which has every datum once, in a fresh random order; an epoch may end within a step.
        trainable: which arrays learn, of those that can: a function of name and array, as
            `lambda name, x: "encoder" in name`; or a tree of Booleans like the models, or like the beginning of their
            tree, as `{"encoder": True, "decoder": False}`. All of them, if None.
        checkpoint: a directory. If it holds a checkpoint of this run, training goes on from there. It is the same run
            if key, particles, batch size, data, models and the equations of a step are the same; one run uses it at a
            time.
        checkpoint_seconds: how often to write one.
        progress: whether to show a progress bar, or lines where there is no terminal.
        callback: called now and then with the result so far; training stops if it returns True.
        mesh: devices. What is shared out to them are the names of its axes. "particles": those of each datum, as by
            `evaluate`. "data": the data of each step. "seeds": several runs side by side; key is then an array of
            keys, one for each, all arrays of the models have the seeds as first axis, and so have the results. Other
            axes do the same work on each device. A run on the same mesh gives the same bits, also where its devices
            belong to other processes. On another mesh all draws are the same, and the loss of a step from the same
            parameters is within 1e-6 of its size; parameters differ by rounding errors, which grow as training goes
            on. With devices of several processes each of them calls `train` with the same
            arguments; the first one writes and reads checkpoints, and shows progress.

    Returns:
        The trained models and the history. After Ctrl-C, what was learned until then.

    Raises:
        ArgumentError: an argument does not make sense; or nothing contributes to the loss.
        CheckpointError: the directory holds another run, or something damaged, and is left as it is; or another run
            uses it; or it cannot be written.

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
    particles, steps = check_count(particles, "train"), check_count(steps, "train", "steps")
    batch_size = None if batch_size is None else check_count(batch_size, "train", "batch_size")
    check_objective(objective, "train")
    layout = layout_of(mesh, particles, batch_size, "train")
    processes = processes_of(layout.mesh, "train")
    key = layout.check_keys(key, "train")
    layout.check_seeds(models, "train", key.shape)
    _check_data(data, batch_size, replacement)
    layout.check_data(data, batch_size, "train")
    data = jax.tree.map(jnp.asarray, data)

    def made(layout: Layout) -> Steps:
        return steps_of(program, models, optimizer, particles, objective, batch_size, trainable, replacement, layout)

    # What a run is does not depend on its devices: it may go on with others.
    on_one = made(layout.on_one_device())
    init, step, trained, _ = on_one.trainer
    learner = init()
    # A wrong program is found at once.
    equations, (_, row) = jax.make_jaxpr(step, return_shape=True)(learner, key, data)

    def empty(done: int) -> tuple[Any, History]:
        return learner, History.empty(done, key.shape, has_rate=row.learning_rate is not None)

    def who() -> dict[str, Any]:
        how = batch_size if replacement else f"{batch_size} without replacement"
        whole = processes.whole(data)
        found = identity(equations, learner, trained(learner), whole, key=key, particles=particles, batch_size=how)
        # Other histories are those of earlier versions.
        return found | ({"history": "with learning rates"} if row.learning_rate is not None else {})

    def result(interrupted: bool) -> TrainResult:
        learner, history = so_far
        return TrainResult(trained(learner), history, interrupted)

    with opened(checkpoint, who, processes) as storage:
        found = storage.load(empty, lambda kept: len(kept[1]), steps)
        learned, history = empty(0) if found is None else found
        # One name for both, so that Ctrl-C finds the parameters and the history of the same step.
        so_far = layout.placed(learned), jax.tree.map(np.asarray, history)
        data, spread = layout.placed_data(data), on_one if layout.mesh is None else made(layout)
        run = runner(spread, equations, learner, key, min(steps, MOST_STEPS_AT_ONCE), layout.placements())
        stopped, count, saved = False, 16, time.monotonic()
        done = len(so_far[1])
        with reporter(steps, progress and processes.is_first, done) as report:
            try:
                if done:
                    report(so_far[1])
                while done < steps and not stopped:
                    count = min(count, steps - done, MOST_STEPS_AT_ONCE)
                    began = time.monotonic()
                    learned, now = run(so_far[0], data, count)
                    count = len(now)
                    # The first time is mostly that of compiling.
                    pace = (time.monotonic() - began) / count if done else 0.0
                    so_far = learned, so_far[1].extended(now)
                    done = len(so_far[1])
                    report(so_far[1])
                    count = max(1, min(4 * count, int(SECONDS_AT_ONCE / max(pace, 1e-9)), MOST_STEPS_AT_ONCE))
                    count, due = processes.first_says(count, time.monotonic() - saved > checkpoint_seconds)
                    if due:
                        storage.save(done, so_far)
                        saved = time.monotonic()
                    stopped = processes.any_says(callback is not None and callback(result(False)) is True)
            except KeyboardInterrupt:
                # Others would wait for this process, where it is to be saved.
                if processes.several:
                    raise
                stopped = True
        # Ctrl-C waits until the checkpoint is written; then there is nothing left to interrupt.
        with suppress(KeyboardInterrupt):
            storage.save(len(so_far[1]), so_far)
    return result(stopped and len(so_far[1]) < steps)


def _check_data(data: Any, batch_size: int | None, replacement: bool) -> None:
    rows = rows_of(data)
    if rows == 0:
        raise ArgumentError("train: data is empty.")
    if batch_size is not None and rows is None:
        raise ArgumentError(f"train: batch_size={batch_size} needs data.")
    if not replacement:
        if batch_size is None or rows is None:
            raise ArgumentError("train: replacement=False is about minibatches, and needs data and a batch_size.")
        check_epochs(rows, batch_size)
