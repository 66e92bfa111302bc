"""Lower bounds on log Z."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient
from jaxtyping import Float

from steelyard.errors import ArgumentError
from steelyard.maps import dom
from steelyard.objectives.estimators import (
    beyond_others,
    log_joint,
    log_sum_of_others,
    normalized,
    observes,
    outgoing,
    score_term,
    sum_of_others,
    weighted_sum,
    with_gradient_of,
)
from steelyard.particles.weights import log_mean, mean
from steelyard.semantics.levels import Level


def elbo(level: Level) -> Float[Array, ""]:
    """The evidence lower bound, with its sign changed.

        loss = -E[log w]    where w is the outgoing weight

    Reparameterised variables have pathwise gradients. For the others the gradient has the score-function term
    -E[(log w - b) grad log q], in which the baseline b is the average of log w over the other particles. The two are
    mixed variable by variable. Unbiased.

    Args:
        level: the level of a propose.

    Returns:
        The loss, an unbiased estimate of an upper bound on -log Z.

    References:
        Wingate and Weber (2013); Kingma and Welling (2014); Ranganath et al. (2014); Mnih and Rezende (2016).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, m): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), 1.0)
        >>> def guide(s, m): s.sample("z", dist.Normal(m, 0.5**0.5))
        >>> q, objective = sy.propose(model, guide), sy.objectives.elbo
        >>> loss = lambda m: sy.evaluate(q, jax.random.key(0), m, particles=1000, objective=objective).loss
        >>> bool(abs(jax.grad(loss)(0.5)) < 0.1)
        True
    """
    bound = mean(level.log_weight)
    differs = outgoing(level) if level.log_weight.shape[-1] > 1 else level.log_weight
    signal = beyond_others(differs) / level.log_weight.shape[-1]
    return with_gradient_of(-bound, -bound - score_term(level.score, signal))


def iwae(level: Level) -> Float[Array, ""]:
    """The importance-weighted bound, with its sign changed.

        loss = -E[log (1/L) sum_l w_l]

    Tighter with more particles; the gradient of the proposal gets noisier with them, which `dreg` mends. Variables
    that are not reparameterised have score-function terms, in which the baseline of particle l is log Z without it.
    The gradient is unbiased.

    Args:
        level: the level of a propose.

    Returns:
        The loss, an unbiased estimate of an upper bound on -log Z.

    References:
        Burda, Grosse and Salakhutdinov (2016); Rainforth et al. (2018) for the noise.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), 1.0)
        >>> def guide(s): s.sample("z", dist.Normal(0.5, 1.0))
        >>> out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=9, objective=sy.objectives.iwae)
        >>> bool(out.loss == -out.log_z)
        True
    """
    return _importance_weighted(level, _log_mean_of_others)


def vimco(level: Level) -> Float[Array, ""]:
    """The importance-weighted bound, with the baseline of VIMCO.

    As `iwae`, where the baseline of particle l is what log Z would be if w_l were the geometric mean of the other
    weights. Made for discrete variables. The gradient is unbiased.

    Args:
        level: the level of a propose.

    Returns:
        The loss, an unbiased estimate of an upper bound on -log Z.

    References:
        Mnih and Rezende (2016).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x): s.observe("x", dist.Normal(s.sample("z", dist.Bernoulli(0.3)), 1.0), 1.0)
        >>> def guide(s, x): s.sample("z", dist.Bernoulli(logits=x))
        >>> q, objective = sy.propose(model, guide), sy.objectives.vimco
        >>> loss = lambda x: sy.evaluate(q, jax.random.key(0), x, particles=100, objective=objective).loss
        >>> bool(abs(jax.grad(loss)(-2.0)) < 1.0)
        True
    """
    return _importance_weighted(level, _log_mean_with_geometric_mean)


def dreg(level: Level) -> Float[Array, ""]:
    """The importance-weighted bound, with the doubly reparameterised gradient.

        gradient of the proposal = -sum_l nu_l^2 (d log w_l / d tau_l) (d tau_l / d phi)
        gradient of the target   = -sum_l nu_l grad log gamma(tau_l)          where nu = w / sum(w)

    The value and the expected gradient are those of `iwae`; the signal-to-noise ratio of the proposal's gradient
    improves with the number of particles. Unbiased.

    Args:
        level: the level of a propose whose proposal is a primitive program of reparameterised variables.

    Returns:
        The loss, an unbiased estimate of an upper bound on -log Z.

    Raises:
        ArgumentError: a variable is not reparameterised, or the proposal is itself weighted.

    References:
        Tucker, Lawson, Gu and Maddison (2019).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), 1.0)
        >>> def guide(s): s.sample("z", dist.Normal(0.5, 1.0))
        >>> out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=9, objective=sy.objectives.dreg)
        >>> bool(abs(out.loss + out.log_z) < 1e-5)
        True
    """
    if level.score is not None:
        raise ArgumentError("dreg: every variable must be reparameterised. Use vimco, or iwae, for discrete variables.")
    if level.kernel is not level.proposal or observes(level.proposal):
        raise ArgumentError("dreg: the proposal must be a primitive program that observes nothing. Use iwae instead.")
    nu = normalized(outgoing(level))
    # The parameters of the densities contribute alike to both; what is left is the path through the values.
    path = level.log_v - (level.fixed.numerator - level.fixed.denominator)
    # Variables of one side only are drawn by one side, and belong to the extended density of the other.
    log_one = jnp.zeros_like(nu)
    extended = log_joint(level.fixed.target, log_one) + log_joint(
        level.fixed.proposal, log_one, dom(level.target.trace)
    )
    surrogate = -weighted_sum(nu**2, path) - weighted_sum(nu, extended)
    return with_gradient_of(-log_mean(level.log_weight), surrogate)


def _importance_weighted(level: Level, baseline: Callable[[Any], Any]) -> Any:
    """-log Z, and its score-function terms with a baseline for each particle, which its own weight must not enter."""
    log_z, weight = log_mean(level.log_weight), outgoing(level)
    if level.score is None:
        return with_gradient_of(-log_z, -log_mean(weight))
    without = baseline(stop_gradient(weight)) if weight.shape[-1] > 1 else jnp.full_like(weight, -jnp.inf)
    # Where no other particle has a weight there is nothing to compare with: the baseline is zero.
    signal = jnp.where(without == -jnp.inf, log_z, log_mean(weight) - without)
    return with_gradient_of(-log_z, -log_mean(weight) - score_term(level.score, signal))


def _log_mean_of_others(log_weight: Any) -> Any:
    return log_sum_of_others(log_weight) - jnp.log(log_weight.shape[-1] - 1)


def _log_mean_with_geometric_mean(log_weight: Any) -> Any:
    size = log_weight.shape[-1]
    # The geometric mean is zero as soon as one weight is.
    geometric_mean = sum_of_others(log_weight) / (size - 1)
    return jnp.logaddexp(log_sum_of_others(log_weight), geometric_mean) - jnp.log(size)
