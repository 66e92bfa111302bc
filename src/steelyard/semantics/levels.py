"""One level of a sampler, as objectives see it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.errors import ArgumentError
from steelyard.language.describe import describe
from steelyard.language.programs import Program, Propose, is_kernel
from steelyard.language.rewrite import marginal, target
from steelyard.maps import Map, dom, log_product
from steelyard.particles import weights
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.facts import total_score
from steelyard.semantics.record import LevelSummary
from steelyard.semantics.values import Values
from steelyard.types import LogWeights, stop_gradient

if TYPE_CHECKING:
    from steelyard.semantics.engine import Engine

ARRAY = jax.Array | np.ndarray | np.generic


@dataclass(frozen=True)
class Level:
    """What an objective compares: a proposal and a target, in the context of one propose.

    Attributes:
        proposal: the evaluation of q, with the densities rho_q.
        target: the evaluation of p under substitution, with the densities rho_p, auxiliary variables included.
        marginal: the evaluation of marginal(p) under substitution.
        log_w: the incoming weights, log w.
        log_v: the incremental weights, log v; the outgoing weights are w v.
        kernel: the evaluation of the last program of q: of q itself if it is primitive, of the program that runs last
            in a compose or move; None after a propose or resample.
        fixed: the same evaluations with every value held fixed.
        past: the log density of draws that are not reparameterised, before q, which its arguments depend on; None
            without any.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.Normal(0.5, 1.0))
        >>> def upper_bound(level): return -level.log_v.mean()
        >>> out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=5, objective=upper_bound)
        >>> bool(out.loss == -out.log_weight.mean())
        True
    """

    proposal: Evaluation
    target: Evaluation
    marginal: Evaluation
    log_w: LogWeights
    log_v: LogWeights
    kernel: Evaluation | None
    fixed: "Fixed"
    past: LogWeights | None = None

    @property
    def log_weight(self) -> LogWeights:
        """The outgoing weights, log w + log v."""
        return self.log_w + self.log_v

    @property
    def score(self) -> LogWeights | None:
        """The log density of all variables that were drawn and are not reparameterised; None without any."""
        return total_score(self.past, self.proposal.score, self.target.score)


def values_are_fixed(e: Evaluation, c0: Values) -> bool:
    """Tell whether no gradient flows into the values of an evaluation, or into the arguments that particles have."""
    return e.fixed and not any(c0.varies)


def detached_log_density(engine: "Engine", p: Program, e: Evaluation, c0: Values) -> Map[Any]:
    """Return the densities of p at the values of an evaluation of it, through which no gradient flows."""
    if values_are_fixed(e, c0):
        return e.log_density
    return engine.at(p, c0, stop_gradient(e.trace)).log_density


class Fixed:
    """The evaluations of a level with every value under `stop_gradient`.

    Gradients then reach the parameters of the densities and nothing else. Each is made when it is first asked for.
    """

    def __init__(self, engine: "Engine", q: Propose, c0: Values, e1: Evaluation, e2: Evaluation) -> None:
        self._engine = engine
        self._q = q
        self._c0 = c0.map_varying(stop_gradient)
        self._e1 = e1
        self._e2 = e2
        # Where nothing is to be held fixed: no gradient flows into the values as they are.
        self._proposal_is_fixed = values_are_fixed(e1, c0)
        self._target_is_fixed = self._proposal_is_fixed and not dom(e2.trace) - dom(e1.trace)

    @cached_property
    def proposal(self) -> Evaluation:
        """target(q) at the values of the proposal: the density that q denotes."""
        if self._proposal_is_fixed:
            return self._e1
        return self._engine.at(target(self._q.q), self._c0, stop_gradient(self._e1.trace))

    @cached_property
    def target(self) -> Evaluation:
        """p at the values of the target."""
        if self._target_is_fixed:
            return self._e2
        return self._engine.at(self._q.p, self._c0, stop_gradient(self._e2.trace))

    @cached_property
    def marginal(self) -> Evaluation:
        """marginal(p) at the values of the target."""
        if self._target_is_fixed:
            return self._e2.marginal
        return self._engine.at(marginal(self._q.p), self._c0, stop_gradient(self._e2.trace))

    @property
    def kernel(self) -> Evaluation | None:
        """The last program of q at the values of the proposal."""
        return self.proposal if is_kernel(self._q.q) else self.proposal.kernel

    @property
    def numerator(self) -> Any:
        """The terms of the target in the incremental weight: all but the variables that the proposal lacks."""
        rho2, tau2, tau1 = self.target.log_density, self._e2.trace, self._e1.trace
        return log_product(rho2, dom(rho2) - (dom(tau2) - dom(tau1)), self._engine.log_one)

    @property
    def denominator(self) -> Any:
        """The terms of the proposal in the incremental weight: all but the variables that the target lacks."""
        rho1, tau1, tau2 = self.proposal.log_density, self._e1.trace, self._e2.trace
        return log_product(rho1, dom(rho1) - (dom(tau1) - dom(tau2)), self._engine.log_one)


Objective: TypeAlias = Callable[[Level], Any]


def loss_of(objective: Objective, level: Level, place: str) -> Any:
    """Return what an objective gives at a level.

    Raises:
        ArgumentError: that is not one real number, so that it is nothing to descend on.
    """
    loss = objective(level)
    if isinstance(loss, ARRAY):
        real = any(jnp.issubdtype(loss.dtype, kind) for kind in (jnp.floating, jnp.integer))
        if real and loss.shape == ():
            return loss
        got = f"{loss.dtype} of shape {loss.shape}"
    elif isinstance(loss, int | float):
        return loss
    else:
        got = f"{type(loss).__name__}"
    raise ArgumentError(
        f"{place}: the objective {getattr(objective, '__name__', objective)!s} returned {got}, but a loss is one real "
        f"number. Average over the particles, for example with jnp.mean(...)."
    )


def compared(
    engine: "Engine", q: Propose, c0: Values, e1: Evaluation, e2: Evaluation, log_v: LogWeights
) -> LevelSummary:
    """Return what is to be seen of a propose: what it does to the weights, and the loss that its objective gives."""
    objective = engine.objective if q.objective is None else q.objective
    loss = 0.0
    if objective is not None:
        kernel, fixed = e1 if is_kernel(q.q) else e1.kernel, Fixed(engine, q, c0, e1, e2)
        level = Level(e1, e2, e2.marginal, e1.log_weight, log_v, kernel, fixed, c0.score)
        loss = loss_of(objective, level, describe(q))
    increment = weights.log_increment(e1.log_weight, log_v)
    return LevelSummary.of(f"propose({describe(marginal(q.p))})", e1.log_weight + log_v, increment, loss=loss)
