"""What estimators of gradients are made of."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from steelyard.maps import Domain, dom, log_product
from steelyard.particles.weights import log_sum, normalize, relative, total
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.facts import total_score
from steelyard.semantics.levels import Level, Objective


def kernels_learn_by(transformation: Callable[[Any], Any]) -> Callable[[Objective], Objective]:
    """Say how forward kernels learn with an objective: by a transformation of programs, which `algorithms.nvi` applies.

    Args:
        transformation: `detach` for an objective that holds values fixed, `stick_the_landing` for a pathwise one.

    Returns:
        A decorator of objectives. Without it, kernels are left as they are.

    Example:
        >>> import jax, steelyard as sy
        >>> @sy.objectives.kernels_learn_by(sy.stick_the_landing)
        ... def loss(level): return -level.log_v.mean()
        >>> loss.kernels_learn_by is sy.stick_the_landing
        True
    """

    def mark(objective: Any) -> Any:
        objective.kernels_learn_by = transformation
        return objective

    return mark


def with_gradient_of(value: Any, surrogate: Any) -> Any:
    """Return a number that has this value, and the gradient of the surrogate."""
    value = stop_gradient(jnp.asarray(value))
    return _with_gradient_of(value, jnp.asarray(surrogate, value.dtype))


# Not value + surrogate - stop_gradient(surrogate): the surrogate would be computed, only to be subtracted again.
@jax.custom_jvp
def _with_gradient_of(value: Any, surrogate: Any) -> Any:
    return value


@_with_gradient_of.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[1]


def normalized(log_weight: Any) -> Any:
    """Return the self-normalised weights, through which no gradient flows."""
    return stop_gradient(normalize(log_weight))


def log_joint(e: Evaluation | None, log_one: Any, without: Domain | None = None) -> Any:
    """Return the log of the product of all densities of an evaluation, but for those in a domain."""
    if e is None:
        return log_one
    domain = dom(e.log_density)
    return log_product(e.log_density, domain if without is None else domain - without, log_one)


def weighted_sum(weight: Any, terms: Any) -> Any:
    """Return sum_l weight_l terms_l, in which a weight of zero counts for nothing, even of something infinite.

    No gradient flows through the weights.
    """
    return _weighted_sum(weight, terms)


# The gradient of each term is its weight: nothing has to be kept of the selection.
@jax.custom_jvp
def _weighted_sum(weight: Any, terms: Any) -> Any:
    return jnp.vdot(weight, jnp.where(weight == 0, 0.0, terms))


@_weighted_sum.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _weighted_sum(*primals), jnp.vdot(primals[0], tangents[1])


def incoming(level: Level, log_one: Any) -> Any:
    """Return the log density of what came in: that of the proposal, without the addresses of its kernel."""
    return log_joint(level.proposal, log_one, None if level.kernel is None else dom(level.kernel.log_density))


def observes(e: Evaluation | None) -> bool:
    """Tell whether a program observes something, so that its density is not normalised."""
    return e is not None and set(e.log_density) != set(e.trace)


def kernel_score(level: Level) -> Any:
    """Return the log density of what this level drew and is not reparameterised; None without any."""
    return total_score(None if level.kernel is None else level.kernel.score, level.target.score)


def outgoing(level: Level) -> Any:
    """Return the outgoing log weights w v, up to a constant that all particles share.

    Next to a large log w or log v, such a constant, the sum of both would lose the digits in which particles differ.
    """
    return relative(level.log_w) + relative(level.log_v)


def beyond_others(x: Any) -> Any:
    """Return for each particle how far it is from the average of the others; its own number for a single particle."""
    size = x.shape[-1]
    if size == 1:
        return x
    x = relative(x)
    return (x - total(x)[..., None] / size) * (size / (size - 1))


def log_sum_of_others(log_weight: Any) -> Any:
    """Return for each particle the log of the sum of all other weights.

    Not as a difference to the sum of all, of which nothing may be left. What the largest weight leaves is summed by
    itself; what another one leaves is at least the largest.
    """
    top = _first(log_weight, jnp.argmax(log_weight, axis=-1))
    rest = log_sum(jnp.where(top, -jnp.inf, log_weight))[..., None]
    largest = jnp.max(log_weight, axis=-1, keepdims=True)
    others = largest + jnp.log(jnp.exp(rest - largest) - jnp.expm1(log_weight - largest))
    return jnp.where(log_weight == largest, rest, others)


def sum_of_others(x: Any) -> Any:
    """Return for each particle the sum of the numbers of all others, none of which is positive.

    The sum without the smallest number, and by how much that one is smaller: neither is positive, and no digit is lost.
    """
    smallest = jnp.min(x, axis=-1, keepdims=True)
    rest = total(jnp.where(_first(x, jnp.argmin(x, axis=-1)), 0.0, x))[..., None]
    return jnp.where(x == smallest, rest, rest + (smallest - x))


def _first(x: Any, index: Any) -> Any:
    return jax.nn.one_hot(index, x.shape[-1], dtype=bool)


def score_term(score: Any, signal: Any) -> Any:
    """Return the surrogate whose gradient is sum_l signal_l grad score_l; zero without a score."""
    return 0.0 if score is None else weighted_sum(stop_gradient(signal), score)
