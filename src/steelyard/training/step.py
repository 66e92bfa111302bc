"""One step of training, as a pure function of what was learned so far and of the data."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from steelyard.arguments import check_count, check_objective
from steelyard.compiler.randomness import keys_of_rows
from steelyard.engines.evaluate import evaluate
from steelyard.errors import ArgumentError
from steelyard.language.programs import Programmable
from steelyard.semantics.levels import Objective
from steelyard.training.history import History
from steelyard.training.layout import Layout, is_array, layout_of
from steelyard.training.minibatches import minibatch
from steelyard.training.parameters import Trainable, partition
from steelyard.training.stateful import unchanged
from steelyard.types import Count


class Learner(NamedTuple):
    """All that a step of training changes.

    Attributes:
        parameters: the arrays of the models that learn.
        optimizer: the state of the optimizer.
        step: how many steps were made, skipped ones included.

    Example:
        >>> import steelyard as sy
        >>> sy.Learner._fields
        ('parameters', 'optimizer', 'step')
    """

    parameters: Any
    optimizer: Any
    step: Int[Array, ""]


class Trainer(NamedTuple):
    """Training as pure functions, for loops of your own.

    Attributes:
        init: `init() -> Learner`, what there is before the first step; with a mesh, on its devices.
        step: `step(learner, key, data=None) -> (Learner, History)`, one step and what happened in it. Its randomness
            comes from the key and from its number: the same key serves all steps.
        models: `models(learner)`, the models with the parameters that were learned.
        loop: `loop(f)(learner, key, data, *others)`, many steps at once, on all devices of the mesh. There it calls
            `f(step, learner, key, data, *others)`, for each seed by itself, and what that returns has the seeds as
            first axis. Devices then go on by themselves, and not step by step.

    Example:
        >>> import steelyard as sy
        >>> sy.Trainer._fields
        ('init', 'step', 'models', 'loop')
    """

    init: Callable[[], Learner]
    step: Callable[..., tuple[Learner, History]]
    models: Callable[[Learner], Any]
    loop: Callable[[Callable[..., Any]], Callable[..., Any]]


class Steps(NamedTuple):
    """A trainer, and its step in a form for loops over many parameters.

    Attributes:
        trainer: the pure functions.
        in_place: `in_place(learner, key, data) -> (Learner, History, spoiled)`, a step from finite parameters without a
            second copy of what was learned. If the gradient is finite and the update is not, the step is spoiled:
            parameters and optimizer are then to be thrown away.
    """

    trainer: Trainer
    in_place: Callable[..., tuple[Learner, History, Bool[Array, ""]]]


def trainer(
    program: Callable[..., Programmable],
    models: PyTree,
    *,
    optimizer: optax.GradientTransformation,
    particles: Count,
    objective: Objective | None = None,
    batch_size: Count | None = None,
    replacement: bool = True,
    trainable: Trainable = None,
    mesh: Mesh | None = None,
) -> Trainer:
    """Return training as pure functions of arrays: for loops, schedules and devices of your own.

    `train` is a loop around them. A step whose loss, gradient or update is not finite changes nothing but its number.

    Args:
        program: `program(models, *datum) -> q`, as for `train`.
        models: any pytree, as for `train`.
        optimizer: an optimiser of optax.
        particles: how many particles for each datum.
        objective: what every propose that has no objective of its own contributes to the loss.
        batch_size: how many data in a step, of those that it is called with; all of them, if None.
        replacement: whether these are drawn with replacement; else in epochs, as for `train`.
        trainable: which arrays learn, as for `train`.
        mesh: devices, as for `train`. With an axis "seeds" all arrays of the models have the seeds as first axis, and
            so have those of a `Learner` and the keys that `step` takes.

    Returns:
        The functions `init`, `step` and `models`; `jit` and `vmap` them as you like.

    Raises:
        ArgumentError: an argument does not make sense; or nothing contributes to the loss.

    Example:
        >>> import jax, optax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(3.0, 1.0))
        >>> program = lambda m: sy.algorithms.svi(model, lambda s: s.sample("z", dist.Normal(m, 1.0)))
        >>> trainer = sy.trainer(program, 0.0, optimizer=optax.adam(0.1), particles=10)
        >>> learner, step = trainer.init(), jax.jit(trainer.step)
        >>> for _ in range(100): learner, now = step(learner, jax.random.key(0))
        >>> bool(abs(trainer.models(learner) - 3.0) < 0.3), bool(now.skipped)
        (True, False)
    """
    particles = check_count(particles, "trainer")
    batch_size = None if batch_size is None else check_count(batch_size, "trainer", "batch_size")
    check_objective(objective, "trainer")
    layout = layout_of(mesh, particles, batch_size, "trainer")
    layout.check_seeds(models, "trainer")
    return steps_of(
        program, models, optimizer, particles, objective, batch_size, trainable, replacement, layout
    ).trainer


def steps_of(
    program: Callable[..., Programmable],
    models: PyTree,
    optimizer: optax.GradientTransformation,
    particles: int,
    objective: Objective | None,
    batch_size: int | None,
    trainable: Trainable = None,
    replacement: bool = True,
    layout: Layout = Layout(),  # noqa: B008
) -> Steps:
    """Return what `trainer` returns and the step in place, for arguments that were checked."""
    parameters, static = partition(models, trainable)
    # What does not learn may differ between seeds, too, if it is an array.
    constants, rest = eqx.partition(static, is_array)

    def init() -> Learner:
        def one(parameters: Any) -> Learner:
            return Learner(parameters, optimizer.init(parameters), jnp.zeros((), jnp.int32))

        learner = (jax.vmap(one) if layout.has_seeds else one)(parameters)
        # Arrays of types of their own, as a step gives them: weak ones would have the steps compiled twice.
        return layout.placed(jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), learner))

    def batch_loss(
        parameters: Any, constants: Any, run_key: PRNGKeyArray, step: Any, data: Any
    ) -> tuple[Any, tuple[Any, Any]]:
        trained, key = eqx.combine(parameters, constants, rest), jax.random.fold_in(run_key, step)

        def one(key: PRNGKeyArray, *datum: Any) -> tuple[Any, Any, Any]:
            with unchanged(trained):
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
            chosen, size = minibatch(data, batch_size, run_key, step, replacement=replacement, share_of=layout.share_of)
            # All data of a step lie on the devices already.
            rows = size * layout.shares if batch_size is None else size
            keys = layout.share_of(keys_of_rows(jax.random.fold_in(key, 1), rows))
            loss, *others = (x.mean() for x in jax.vmap(one)(keys, *chosen))
        return loss, tuple(others)

    def gradient(learner: Learner, constants: Any, key: PRNGKeyArray, data: Any) -> tuple[Any, tuple[Any, ...]]:
        of_loss = jax.value_and_grad(batch_loss, has_aux=True)
        found = of_loss(learner.parameters, constants, key, learner.step, data)
        (loss, (log_z, ess)), gradients = layout.mean(found)
        return gradients, (loss, log_z, ess, optax.tree.norm(gradients))

    def update(gradients: Any, parameters: Any, state: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    def one_step(learner: Learner, constants: Any, key: PRNGKeyArray, data: Any) -> tuple[Learner, History]:
        gradients, (loss, log_z, ess, norm) = gradient(learner, constants, key, data)
        unchanged = learner.parameters, learner.optimizer
        updated = update(gradients, *unchanged)
        good = jnp.isfinite(loss) & jnp.isfinite(norm) & _is_sound(updated[0], learner.parameters)
        parameters, state = jax.tree.map(lambda new, old: jnp.where(good, new, old), updated, unchanged)
        return Learner(parameters, state, learner.step + 1), History(
            loss, log_z, ess, norm, ~good, learning_rate(state)
        )

    def loop(f: Callable[..., Any]) -> Callable[..., Any]:
        def one(learner: Learner, constants: Any, key: PRNGKeyArray, data: Any, *others: Any) -> Any:
            def step(learner: Learner, key: PRNGKeyArray, data: PyTree | None = None) -> tuple[Learner, History]:
                return one_step(learner, constants, key, data)

            return f(step, learner, key, data, *others)

        def run(learner: Learner, key: PRNGKeyArray, data: PyTree | None = None, *others: Any) -> Any:
            layout.check_data(data, batch_size, "trainer")
            return layout.spread(one)(learner, constants, key, data, *others)

        return run

    one_at_a_time = loop(lambda step, *args: step(*args))
    if layout.mesh is not None:
        # Operation by operation, each would be sent to all devices.
        one_at_a_time = jax.jit(one_at_a_time)

    def step(learner: Learner, key: PRNGKeyArray, data: PyTree | None = None) -> tuple[Learner, History]:
        return one_at_a_time(learner, key, data)

    def in_place(learner: Learner, key: PRNGKeyArray, data: PyTree | None) -> tuple[Learner, History, Any]:
        gradients, (loss, log_z, ess, norm) = gradient(learner, constants, key, data)
        unchanged = learner.parameters, learner.optimizer

        def updated(gradients: Any, unchanged: Any) -> Any:
            new = update(gradients, *unchanged)
            return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(new, old)), new, unchanged)

        # A branch, not a choice between numbers: XLA then writes the new ones over the old ones.
        good = jnp.isfinite(loss) & jnp.isfinite(norm)
        parameters, state = jax.lax.cond(good, updated, lambda gradients, unchanged: unchanged, gradients, unchanged)
        spoiled = ~is_finite(parameters)
        now = History(loss, log_z, ess, norm, ~good | spoiled, learning_rate(state))
        return Learner(parameters, state, learner.step + 1), now, spoiled

    return Steps(Trainer(init, step, lambda learner: eqx.combine(learner.parameters, static), loop), in_place)


def _is_sound(parameters: Any, before: Any) -> Bool[Array, ""]:
    """Tell whether the parameters are finite; those that were not so before, as in a mask, may stay as they were."""
    sound = jax.tree.map(lambda new, old: jnp.all(jnp.isfinite(new) | (new == old)), parameters, before)
    return jnp.all(jnp.stack(jax.tree.leaves(sound)))


def is_finite(parameters: Any) -> Bool[Array, ""]:
    """Tell whether all parameters are finite. XLA finds the largest faster than it combines flags."""
    largest = jax.tree.map(lambda x: jnp.max(jnp.abs(x), initial=0.0), parameters)
    return jnp.all(jnp.stack([x < jnp.inf for x in jax.tree.leaves(largest)]))


def learning_rate(state: Any) -> Array | None:
    """Return the learning rate that the state of an optimiser tells; None, if it tells none, or several."""
    found = optax.tree.get_all_with_path(state, "learning_rate")
    # A parameter may have this name as well, and an optimiser keeps averages of parameters.
    rates = [x for path, x in found if "hyperparams" in map(_field, path[-2:-1])]
    return jnp.asarray(rates[0]) if len(rates) == 1 and jnp.ndim(rates[0]) == 0 else None


def _field(entry: Any) -> str | None:
    return entry.name if isinstance(entry, optax.tree_utils.NamedTupleKey) else None
