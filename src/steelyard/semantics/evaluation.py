"""What evaluating a program gives: the record that every rule, engine and objective speaks.

It has three parts: the judgement of the paper, c, tau, rho, w; a record for people; and facts that the rules need.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from steelyard.ancestors import indices_of, take
from steelyard.arguments import check_count, check_key
from steelyard.errors import ArgumentError
from steelyard.estimates.ancestry import Kept, trajectories
from steelyard.estimates.expectation import expectation
from steelyard.estimates.exports import Exported
from steelyard.estimates.filtered import Filtered
from steelyard.estimates.uncertainty import Uncertain
from steelyard.maps import Map
from steelyard.output import Encodable, drawn, hypertext, rendered
from steelyard.particles import resampling, weights
from steelyard.semantics.facts import Facts, total_score
from steelyard.semantics.record import LevelSummary, Record
from steelyard.semantics.values import Values, dense
from steelyard.types import Ancestors, Count, Key, LogWeights, Method


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Evaluation(Exported, Filtered, Uncertain):
    """The particles that a program gave: every array has the particle axis first.

    Attributes:
        trace: tau, from address to the value of every unobserved variable.
        log_density: rho, from address to the log density of every variable, observed ones too.
        log_weight: log w, properly weighted for the density that the program denotes.
        record: what people look at: levels, ancestors, loss, histories.
        facts: what only the rules and objectives need.

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
    record: Record = Record()
    facts: Facts = Facts()

    @property
    def levels(self) -> tuple[LevelSummary, ...]:
        """A summary of each propose and resample, in the order in which they ran."""
        return self.record.levels

    @property
    def ancestors(self) -> Ancestors | None:
        """For each particle the index that it descends from; None where nothing was resampled."""
        return self.record.ancestors

    @property
    def loss(self) -> Any:
        """The sum of the objectives of all levels; zero without one."""
        return self.record.loss

    @property
    def histories(self) -> tuple[Kept, ...]:
        """Of each `scan` that keeps variables, their values at each step and the ancestors that connect them."""
        return self.record.histories

    @property
    def found(self) -> Any:
        """What an adaptive schedule chose; None without one."""
        return self.record.found

    @property
    def pointwise(self) -> Map[Any]:
        """From observed address to log density by observation, as `log_prob` gives it; empty, if not asked for.

        `evaluate(..., pointwise=True)` asks for it. The terms are scaled and tempered like the density at this address,
        which is their sum. A factor is no observation and has none.
        """
        return self.record.pointwise

    @property
    def score(self) -> LogWeights | None:
        """The log density of the variables that were drawn and are not reparameterised; None without any."""
        return self.facts.score

    @property
    def kernel(self) -> "Evaluation | None":
        """Of a compose or move, the evaluation of the program that ran last; for objectives."""
        return self.facts.kernel

    @property
    def fixed(self) -> bool:
        """Whether no gradient flows into the values of the trace."""
        return self.facts.fixed

    @property
    def marginal(self) -> "Evaluation":
        """Of an extended target, the evaluation of its marginal; of any other program, its own."""
        return self.facts.marginal or self

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
        noise = resampling.draw_noise(key, method, size)
        if isinstance(self.log_weight, np.ndarray):
            noise = noise.to_uniforms()
        indices = resampling.ancestors(self.log_weight, method, noise, size)
        xp = self.log_weight.__array_namespace__()
        out = self.reindex(indices)
        return replace(
            out,
            log_weight=xp.broadcast_to(self.log_z, (size,)),
            record=replace(out.record, ancestors=indices, redrawn=True),
        )

    def reindex(self, ancestors: Ancestors | None) -> "Evaluation":
        """Return the evaluation in which particle l is what particle `ancestors[l]` was; itself, if None."""
        if ancestors is None:
            return self
        values = self.values.reindex(ancestors)
        return Evaluation(
            values,
            self.trace.reindex(ancestors),
            self.log_density.reindex(ancestors),
            take(self.log_weight, ancestors),
            self.record.reindex(ancestors),
            self.facts.reindex(ancestors, self.values, values),
        )

    def rename(self, new: Callable[[str], str]) -> "Evaluation":
        """Return the evaluation under other addresses; of what was kept, that of addresses which it still has."""
        return replace(
            self,
            trace=self.trace.rename(new),
            log_density=self.log_density.rename(new),
            record=self.record.rename(lambda a: new(a) if a in self.log_density else a),
            facts=self.facts.rename(new),
        )

    def then(self, after: "Evaluation") -> "Evaluation":
        """Return the evaluation of two programs one after the other, whose domains are disjoint."""
        return Evaluation(
            after.values,
            after.trace | self.trace,
            after.log_density | self.log_density,
            after.log_weight + self.log_weight,
            self.record.then(after.record),
            self.facts.then(after),
        )

    def finished(self) -> "Evaluation":
        """Return the evaluation without the facts that only rules need."""
        facts = replace(self.facts, kernel=None, marginal=None, provenance=None, returned=None)
        record = replace(self.record, ancestors=indices_of(self.record.ancestors))
        return replace(self, record=record, facts=facts)

    def as_arguments(self, c0: Values) -> Values:
        """Return what the next program is called with: the value of this one, which was called with c0."""
        return self.values.as_arguments(total_score(c0.score, self.score))

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
            >>> q = sy.scan(step, start, jnp.array([0.3, 0.1, -0.5]), keep=["z"])
            >>> sy.evaluate(q, jax.random.key(0), particles=100).trajectories()["z"].shape
            (100, 4)
        """
        if not self.record.histories:
            raise ArgumentError("trajectories: nothing was kept. Name the variables: scan(step, q, xs, keep=['z']).")
        follow = trajectories
        for _ in range(self.log_weight.ndim - 1):
            follow = jax.vmap(follow)
        return follow(self.histories)

    def __repr__(self) -> str:
        return rendered(drawn(self), width=80)

    def _repr_html_(self) -> str:
        return hypertext(self)

    def __rich__(self) -> Any:
        return Encodable(drawn(self))
