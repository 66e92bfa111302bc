"""What training gives: the models, and what happened at each step."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class History:
    """What happened at each step; if several seeds were trained, to each of them, along a second axis.

    Attributes:
        loss: the loss, averaged over the minibatch.
        log_z: the estimate of log Z, averaged likewise.
        ess: the effective sample size, averaged likewise.
        gradient_norm: the Euclidean norm of the gradient.
        skipped: whether the loss, its gradient or the update was not finite, so that no update was made.
        learning_rate: the learning rate, where the optimiser tells one, as `optax.inject_hyperparams` does; else None.

    Example:
        >>> import jax, optax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(3.0, 1.0))
        >>> program = lambda m: sy.algorithms.svi(model, lambda s: s.sample("z", dist.Normal(m, 1.0)))
        >>> result = sy.train(program, 0.0, optimizer=optax.adam(0.1), steps=5, key=jax.random.key(0), particles=10,
        ...                   progress=False)
        >>> result.history.loss.shape
        (5,)
    """

    loss: Float[Array, "steps *seeds"]
    log_z: Float[Array, "steps *seeds"]
    ess: Float[Array, "steps *seeds"]
    gradient_norm: Float[Array, "steps *seeds"]
    skipped: Bool[Array, "steps *seeds"]
    learning_rate: Float[Array, "steps *seeds"] | None = None

    @classmethod
    def empty(cls, steps: int, seeds: tuple[int, ...] = (), *, has_rate: bool = False) -> "History":
        """Return a history of steps that are still to be made; of so many seeds, if there are several."""
        zeros = jnp.zeros((steps, *seeds))
        return cls(zeros, zeros, zeros, zeros, jnp.zeros(zeros.shape, bool), zeros if has_rate else None)

    def __len__(self) -> int:
        return self.loss.shape[0]

    def extended(self, rows: np.ndarray) -> "History":
        """Return the history with more steps, a row for each, with a column for each field."""
        columns = jax.tree.unflatten(jax.tree.structure(self), list(np.moveaxis(rows, 1, 0)))
        return jax.tree.map(lambda before, now: np.concatenate([before, now.astype(before.dtype)]), self, columns)


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
