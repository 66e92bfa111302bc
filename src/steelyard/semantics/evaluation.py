"""What evaluating a program gives: the record that every rule, engine and objective speaks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from steelyard.arguments import check_count, check_key
from steelyard.errors import ArgumentError
from steelyard.maps import Map, take
from steelyard.particles import resampling, weights
from steelyard.particles.randomness import particle_key, scattered
from steelyard.semantics import display
from steelyard.semantics.ancestry import Kept, trajectories
from steelyard.semantics.expectation import expectation
from steelyard.semantics.values import Values
from steelyard.types import Ancestors, Count, Key, LogWeights, Method, Scalar


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LevelSummary:
    """What a person needs to see of one propose or resample to find where a sampler degenerates.

    Attributes:
        label: the combinator and its target.
        log_z_increment: how much the estimate of log Z changed.
        ess: the effective sample size of the outgoing weights.
        max_weight: the largest normalised weight.
        ancestors: how many distinct particles were kept; all of them, where nothing was resampled.
        loss: what the objective gave here; zero without one.
        acceptance: of a Markov kernel, how often it moved a particle: the average of the acceptance probabilities, by
            weight, over particles and steps; else None.
        jump: of a Markov kernel, the average squared distance between the places of a particle before and after; else
            None.

    Example:
        >>> import jax, steelyard as sy
        >>> def q(s): s.factor("score", 0.5)
        >>> [level.label for level in sy.evaluate(sy.resample(q), jax.random.key(0), particles=3).levels]
        ['resample']
    """

    label: str = field(metadata={"static": True})
    log_z_increment: Scalar
    ess: Scalar
    max_weight: Scalar
    ancestors: Any
    loss: Any = 0.0
    acceptance: Any = None
    jump: Any = None

    @classmethod
    def of(
        cls, label: str, log_weight: LogWeights, increment: Any = None, *, ancestors: Any = None, loss: Any = 0.0
    ) -> "LevelSummary":
        """Summarise a step to these weights, which changed log Z by an increment; not at all, if None."""
        if increment is None:
            xp = log_weight.__array_namespace__()
            increment = xp.where(xp.isfinite(weights.log_mean(log_weight)), 0.0, xp.nan)
        kept = log_weight.shape[-1] if ancestors is None else resampling.distinct(ancestors)
        ess, largest = weights.effective_sample_size(log_weight), weights.normalize(log_weight).max(axis=-1)
        return cls(label, increment, ess, largest, kept, loss)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Evaluation:
    """The particles that a program gave: every array has the particle axis first.

    Attributes:
        trace: tau, from address to the value of every unobserved variable.
        log_density: rho, from address to the log density of every variable, observed ones too.
        log_weight: log w, properly weighted for the density that the program denotes.
        levels: a summary of each propose and resample, in the order in which they ran.
        ancestors: for each particle the index that it descends from; None where nothing was resampled.
        loss: the sum of the objectives of all levels; zero without one.
        score: the log density of the variables that were drawn and are not reparameterised; None without any.
        kernel: of a compose or move, the evaluation of the program that ran last; for objectives.
        fixed: whether no gradient flows into the values of the trace.
        histories: of each `scan` that keeps variables, their values at each step and the ancestors that connect them.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        ...     return z
        >>> out = sy.evaluate(model, jax.random.key(0), 1.3, particles=1000)
        >>> out.value.shape, out.log_density["x"].shape, bool(0 < out.ess < 1000)
        ((1000,), (1000,), True)
    """

    values: Values
    trace: Map[Any]
    log_density: Map[Any]
    log_weight: LogWeights
    levels: tuple[LevelSummary, ...] = ()
    ancestors: Ancestors | None = None
    loss: Any = 0.0
    score: LogWeights | None = None
    kernel: "Evaluation | None" = None
    fixed: bool = field(default=False, metadata={"static": True})
    # In a loop: the densities at detached values, which only the step before could evaluate.
    at_rest: Map[Any] | None = None
    histories: tuple[Kept, ...] = ()
    # Whether variables were dropped, so that the densities are not those of the whole program.
    partial: bool = field(default=False, metadata={"static": True})
    # Which program the densities are of, while it is known; see `semantics/dependencies.py`.
    provenance: Any = field(default=None, metadata={"static": True})
    # What that program returned: quantities that need not be computed again until a variable of theirs is replaced.
    returned: Values | None = None
    # Of an extended target: the evaluation of its marginal, which was made on the way.
    marginal: "Evaluation | None" = None
    # The variables that a bijection mixed, whose densities have a meaning only together.
    joint: tuple[frozenset[str], ...] = field(default=(), metadata={"static": True})
    # What an adaptive schedule chose, step by step.
    found: Any = None

    @property
    def value(self) -> Any:
        """c, what the program returned, with the particle axis first."""
        if self.values.are_objects:
            return dense(self.values.tree)
        return self.values.broadcast(self.log_weight.shape)

    @property
    def particles(self) -> int:
        """The number of particles."""
        return self.log_weight.shape[-1]

    @property
    def log_z(self) -> Float[Array, "..."]:
        """The log of the average weight, whose expectation (of the average) is the normalising constant Z."""
        return weights.log_mean(self.log_weight)

    @property
    def ess(self) -> Float[Array, "..."]:
        """The effective sample size, (sum w)^2 / sum w^2."""
        return weights.effective_sample_size(self.log_weight)

    @property
    def normalized_weights(self) -> Float[Array, "... particles"]:
        """w / sum(w)."""
        return weights.normalize(self.log_weight)

    def expect(self, h: Callable[[Map[Any]], Any], *, given: Iterable[str] = ()) -> Any:
        """Estimate the expectation of h under the normalised density.

            E[h] ~ sum_l w_l h(tau_l) / sum_l w_l

        Self-normalised: consistent, with a bias that shrinks as 1/L. A variable that some particles lack has no
        expectation: `t.get("z", 0.0)` counts it as zero there, and `given=["z"]` averages over the particles that have
        it.

        Args:
            h: a function of one particle's trace, which returns an array or a tree of arrays.
            given: addresses; only the particles that have all of them count.

        Returns:
            The estimate, of the shape that h returns.

        Raises:
            AddressError: h reads a variable that some particles lack, and that is not given.

        Example:
            >>> import jax, numpyro.distributions as dist, steelyard as sy
            >>> def model(s): s.sample("z", dist.Normal(2.0, 1.0))
            >>> out = sy.evaluate(model, jax.random.key(0), particles=10_000)
            >>> bool(abs(out.expect(lambda t: t["z"]) - 2.0) < 0.1)
            True
        """
        return expectation(h, self.trace, self.log_weight, given)

    def resample(self, key: Key, particles: Count | None = None, *, method: Method = "systematic") -> "Evaluation":
        """Draw equally weighted particles from these.

        Args:
            key: a key of `jax.random.key`.
            particles: how many; as many as there are, if None.
            method: as for the combinator `resample`.

        Returns:
            An evaluation in which every particle has the average weight, so that log Z stays what it was.

        Example:
            >>> import jax, numpyro.distributions as dist, steelyard as sy
            >>> def model(s): s.sample("z", dist.Normal(2.0, 1.0))
            >>> out = sy.evaluate(model, jax.random.key(0), particles=100)
            >>> out.resample(jax.random.key(1), 3).trace["z"].shape
            (3,)
        """
        if method not in resampling.RESAMPLERS:
            raise ArgumentError(
                f"Evaluation.resample: unknown method {method!r}; choose one of {', '.join(resampling.RESAMPLERS)}."
            )
        if self.log_weight.ndim != 1:
            raise ArgumentError("Evaluation.resample takes one population; use jax.vmap over a batch of them.")
        key = check_key(key, "Evaluation.resample")
        size = check_count(self.particles if particles is None else particles, "Evaluation.resample")
        noise = resampling.draw_noise(particle_key(scattered(key), 0), method, size)
        if isinstance(self.log_weight, np.ndarray):
            noise = noise.to_uniforms()
        indices = resampling.ancestors(self.log_weight, method, noise, size)
        xp = self.log_weight.__array_namespace__()
        return replace(self.reindex(indices), log_weight=xp.broadcast_to(self.log_z, (size,)), ancestors=indices)

    def reindex(self, ancestors: Ancestors | None) -> "Evaluation":
        """Return the evaluation in which particle l is what particle `ancestors[l]` was; itself, if None."""
        if ancestors is None:
            return self
        values = self.values.reindex(ancestors)
        same = self.returned is self.values
        return replace(
            self,
            values=values,
            trace=self.trace.reindex(ancestors),
            log_density=self.log_density.reindex(ancestors),
            log_weight=take(self.log_weight, ancestors),
            ancestors=ancestors if self.ancestors is None else take(self.ancestors, ancestors),
            score=take(self.score, ancestors),
            at_rest=None if self.at_rest is None else self.at_rest.reindex(ancestors),
            returned=self.returned and (values if same else self.returned.reindex(ancestors)),
            histories=tuple(history.reindex(ancestors) for history in self.histories),
            kernel=None,
            marginal=None,
        )

    @property
    def kept(self) -> Kept | None:
        """The values at each step of the last `scan` that keeps variables, particles as they were then."""
        return self.histories[-1] if self.histories else None

    def trajectories(self) -> dict[str, Any]:
        """Return the whole history of each particle, of the variables that a `scan` was asked to keep.

        Returns:
            For each address an array with axes particle and step, the initial program's value first.

        Raises:
            ArgumentError: nothing was kept.

        Example:
            >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
            >>> def start(s): return s.sample("z", dist.Normal(0.0, 1.0))
            >>> def step(q, y):
            ...     def transition(s, z):
            ...         z = s.sample("z", dist.Normal(0.9 * z, 1.0))
            ...         s.factor("y", -0.5 * (y - z) ** 2)
            ...         return z
            ...     return sy.move(transition, sy.resample(q))
            >>> def first(s): s.factor("y", 0.0); return start(s)
            >>> q = sy.scan(step, first, jnp.array([0.3, 0.1, -0.5]), keep=["z"])
            >>> sy.evaluate(q, jax.random.key(0), particles=100).trajectories()["z"].shape
            (100, 4)
        """
        if not self.histories:
            raise ArgumentError("trajectories: nothing was kept. Name the variables: scan(step, q, xs, keep=['z']).")
        follow = trajectories
        for _ in range(self.log_weight.ndim - 1):
            follow = jax.vmap(follow)
        return follow(self.histories)

    def __repr__(self) -> str:
        return display.text(self)

    def __rich__(self) -> Any:
        return display.table(self)


def dense(objects: Any) -> Any:
    """Return an array of Python objects as a tree of arrays where they are alike, and as it is where they are not."""
    items = list(objects)
    structures = {jax.tree.structure(x) for x in items}
    if len(structures) != 1:
        return objects
    columns = zip(*(jax.tree.leaves(x) for x in items), strict=True)
    try:
        return jax.tree.unflatten(structures.pop(), [np.stack([np.asarray(x) for x in column]) for column in columns])
    except ValueError:
        return objects
