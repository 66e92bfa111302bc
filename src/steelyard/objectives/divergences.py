"""Divergences between the two sides of a level, for nested variational inference.

At a level with incoming density gamma_{k-1}, kernel q_k, target gamma_k and reverse kernel r_k,

    check = gamma_{k-1} q_k / Z_{k-1}    hat = gamma_k r_k / Z_k    v = gamma_k r_k / (gamma_{k-1} q_k)

Expectations under check are self-normalised with the incoming weights w, those under hat with the outgoing w v. What
came in is taken for a sample from gamma_{k-1}: it must be detached, `move(kernel, detach(q))`, as in `algorithms.nvi`.
"""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from steelyard.language.variants import detach, stick_the_landing
from steelyard.objectives.estimators import (
    beyond_others,
    incoming,
    kernel_score,
    kernels_learn_by,
    log_joint,
    normalized,
    observes,
    outgoing,
    score_term,
    weighted_sum,
    with_gradient_of,
)
from steelyard.particles.weights import log_increment, mean, relative
from steelyard.semantics.levels import Level


@kernels_learn_by(stick_the_landing)
def reverse_kl(level: Level) -> Float[Array, ""]:
    """The divergence KL(check || hat) of a level.

        KL = E_check[-log v] + log Z_k - log Z_{k-1}

    Its gradient, term by term: of the forward kernel, pathwise (with score-function terms where it is not
    reparameterised); of the reverse kernel, -E_check[grad log r_k]; of gamma_k, E_hat[grad log gamma_k] -
    E_check[grad log gamma_k]; of gamma_{k-1}, E_check[(-log v - b) grad log gamma_{k-1}], where the baseline b is the
    average of -log v. Self-normalised: the bias shrinks as 1/L.

    Args:
        level: the level of a propose.

    Returns:
        The loss, with a self-normalised estimate of the divergence as its value.

    References:
        Zimmermann, Wu, Esmaeili and van de Meent (2021).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, m): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s, m): s.sample("z", dist.Normal(m, 1.0))
        >>> q, objective = sy.propose(model, guide), sy.objectives.reverse_kl
        >>> loss = lambda m: sy.evaluate(q, jax.random.key(0), m, particles=1000, objective=objective).loss
        >>> bool(abs(jax.grad(loss)(0.5) - 0.5) < 0.1)
        True
    """
    w, wv = normalized(level.log_w), normalized(outgoing(level))
    log_one = jnp.zeros_like(w)
    # A factor that all particles share changes no divergence; next to it, nothing would be left of one.
    log_v = relative(level.log_v)
    cost = -log_v
    average = weighted_sum(w, cost)
    signal = jnp.where(w == 0, 0.0, w * (cost - average))
    before, score = incoming(level, log_one), kernel_score(level)
    if level.kernel is not None and observes(level.kernel):
        # The kernel is a part of gamma_{k-1} then, by its weight and by what it draws.
        before, score = before + level.kernel.log_weight + (log_one if score is None else score), None
    surrogate = (
        weighted_sum(w, cost)
        + weighted_sum(wv, log_joint(level.fixed.marginal, log_one))
        - weighted_sum(w, before)
        + score_term(before, signal)
        + score_term(score, signal)
    )
    return with_gradient_of(average + log_increment(level.log_w, log_v), surrogate)


@kernels_learn_by(detach)
def forward_kl(level: Level) -> Float[Array, ""]:
    """The divergence KL(hat || check) of a level.

        KL = E_hat[log v] - log Z_k + log Z_{k-1}

    Its gradient, term by term: of the forward kernel, -E_hat[grad log q_k]; of gamma_{k-1}, E_check[grad log
    gamma_{k-1}] - E_hat[grad log gamma_{k-1}]; of gamma_k and the reverse kernel, E_hat[(log v - b) grad log (gamma_k
    r_k)], where the baseline b is the average of log v. Values are held fixed. Self-normalised: the bias shrinks as
    1/L.

    Args:
        level: the level of a propose.

    Returns:
        The loss, with a self-normalised estimate of the divergence as its value.

    References:
        Zimmermann, Wu, Esmaeili and van de Meent (2021); Gu, Ghahramani and Turner (2015).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, m): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s, m): s.sample("z", dist.Normal(m, 1.0))
        >>> q, objective = sy.propose(model, guide), sy.objectives.forward_kl
        >>> loss = lambda m: sy.evaluate(q, jax.random.key(0), m, particles=1000, objective=objective).loss
        >>> bool(abs(jax.grad(loss)(0.5) - 0.5) < 0.1)
        True
    """
    w, wv = normalized(level.log_w), normalized(outgoing(level))
    log_one = jnp.zeros_like(w)
    log_v = relative(level.log_v)
    average = weighted_sum(wv, log_v)
    signal = jnp.where(wv == 0, 0.0, wv * (log_v - average))
    surrogate = (
        weighted_sum(w - wv if observes(level.kernel) else -wv, log_joint(level.fixed.kernel, log_one))
        + weighted_sum(w - wv, incoming(level, log_one))
        + score_term(log_joint(level.fixed.target, log_one), signal)
    )
    return with_gradient_of(average - log_increment(level.log_w, log_v), surrogate)


@kernels_learn_by(stick_the_landing)
def avo(level: Level) -> Float[Array, ""]:
    """The annealed variational objective of a level.

        loss = E[-log v]

    over particles as they come, without weights: kernels and reverse kernels learn to carry gamma_{k-1} to gamma_k,
    and intermediate densities are not learned. Biased where what comes in is not distributed as gamma_{k-1}.

    Args:
        level: the level of a propose.

    Returns:
        The loss.

    References:
        Huang, Tan, Lacoste and Courville (2018).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.Normal(0.5, 1.0))
        >>> out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=4, objective=sy.objectives.avo)
        >>> bool(abs(out.loss + out.log_weight.mean()) < 1e-6)
        True
    """
    cost = mean(-level.log_v)
    signal = beyond_others(-level.log_v) / level.log_v.shape[-1]
    return with_gradient_of(cost, cost + score_term(kernel_score(level), signal))
