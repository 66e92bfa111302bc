"""Objectives in the manner of reweighted wake-sleep: values are held fixed, and only densities learn."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from steelyard.objectives.estimators import log_joint, normalized, observes, outgoing, weighted_sum, with_gradient_of
from steelyard.particles.weights import log_increment, log_mean, relative
from steelyard.semantics.levels import Level


def wake_theta(level: Level) -> Float[Array, ""]:
    """The wake phase of the target: maximise log Z.

        gradient = -sum_l (w_l / sum w) grad log gamma_p(tau_l)    (eq. rws-log-Z)

    in which gamma_p is the density of `marginal(p)`, and w the outgoing weight. Self-normalised: the bias shrinks as
    1/L.

    Args:
        level: the level of a propose.

    Returns:
        The loss, with the value -log Z.

    References:
        Bornschein and Bengio (2015); Le et al. (2019).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, m): s.observe("x", dist.Normal(s.sample("z", dist.Normal(m, 1.0)), 1.0), 1.0)
        >>> def guide(s, m): s.sample("z", dist.Normal(0.5, 1.0))
        >>> q, objective = sy.propose(model, guide), sy.objectives.wake_theta
        >>> loss = lambda m: sy.evaluate(q, jax.random.key(0), m, particles=1000, objective=objective).loss
        >>> bool(abs(jax.grad(loss)(0.0) + 0.5) < 0.1)
        True
    """
    nu = normalized(outgoing(level))
    surrogate = -weighted_sum(nu, log_joint(level.fixed.marginal, jnp.zeros_like(nu)))
    return with_gradient_of(-log_mean(level.log_weight), surrogate)


def wake_phi(level: Level) -> Float[Array, ""]:
    """The wake phase of the proposal: minimise the forward KL divergence from the target to the proposal.

        gradient = -sum_l (w2_l / sum w2 - w1_l / sum w1) grad log gamma_q(tau_l)    (eq. rws-kl)

    in which w1 is the incoming and w2 the outgoing weight. Where q observes nothing its density is normalised, the
    second term has expectation zero, and is left out. Self-normalised: the bias shrinks as 1/L.

    Args:
        level: the level of a propose.

    Returns:
        The loss, with a self-normalised estimate of the divergence as its value.

    References:
        Bornschein and Bengio (2015); Le et al. (2019).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, m): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s, m): s.sample("z", dist.Normal(m, 1.0))
        >>> q, objective = sy.propose(model, guide), sy.objectives.wake_phi
        >>> loss = lambda m: sy.evaluate(q, jax.random.key(0), m, particles=1000, objective=objective).loss
        >>> bool(abs(jax.grad(loss)(0.5) - 0.5) < 0.1)
        True
    """
    w1, w2 = normalized(level.log_w), normalized(outgoing(level))
    proposal = level.fixed.proposal
    surrogate = weighted_sum(w1 - w2 if observes(proposal) else -w2, log_joint(proposal, jnp.zeros_like(w2)))
    log_v = relative(level.log_v)
    divergence = weighted_sum(w2, log_v) - log_increment(level.log_w, log_v)
    return with_gradient_of(divergence, surrogate)


def rws(level: Level) -> Float[Array, ""]:
    """Reweighted wake-sleep: `wake_theta` for the target plus `wake_phi` for the proposal.

    Self-normalised: the bias shrinks as 1/L.

    Args:
        level: the level of a propose.

    Returns:
        The loss: -log Z plus the divergence from target to proposal.

    References:
        Bornschein and Bengio (2015); Le et al. (2019).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=4, objective=sy.objectives.rws)
        >>> float(out.loss)
        0.0
    """
    return wake_theta(level) + wake_phi(level)


def apg(level: Level) -> Float[Array, ""]:
    """Amortized population Gibbs: at each level, wake updates of the target and of the kernel that ran last.

        gradient of the kernel = -sum_l (w_l / sum w) grad log q(tau_l)
        gradient of the target = -sum_l (w_l / sum w) grad log gamma_p(tau_l)

    A kernel that observes something has the two terms of `wake_phi`. The reverse kernel of the extended target, and
    what came in, have no gradient. Self-normalised: the bias shrinks as 1/L.

    Args:
        level: the level of a propose.

    Returns:
        The loss: -log Z plus the cross entropy of the kernel.

    References:
        Wu, Zimmermann, Sennesh, Le and van de Meent (2020).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=4, objective=sy.objectives.apg)
        >>> bool(out.loss > 0)
        True
    """
    w1, w2 = normalized(level.log_w), normalized(outgoing(level))
    kernel = level.fixed.kernel
    log_q = log_joint(kernel, jnp.zeros_like(w2))
    # Both expectations of a constant are the same.
    difference = weighted_sum(w1 - w2, relative(log_q)) if observes(kernel) else weighted_sum(-w2, log_q)
    return wake_theta(level) + difference
