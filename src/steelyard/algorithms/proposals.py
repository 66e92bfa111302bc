"""One model and one guide: importance sampling, and the ways to train the guide."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from steelyard import objectives
from steelyard.language.combinators import propose
from steelyard.language.programs import Programmable, Propose
from steelyard.language.variants import detach


def importance(model: Programmable, guide: Programmable) -> Propose:
    """Importance sampling: the guide proposes for the model.

    Args:
        model: a target program.
        guide: any program, called with the same arguments.

    Returns:
        An inference program for the model.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.Normal(0.0, 2.0))
        >>> out = sy.evaluate(sy.algorithms.importance(model, guide), jax.random.key(0), particles=10_000)
        >>> bool(abs(out.log_z) < 0.05)
        True
    """
    return propose(model, guide)


def svi(model: Programmable, guide: Programmable) -> Propose:
    """Stochastic variational inference: importance sampling, trained with the evidence lower bound.

    Args:
        model: a target program.
        guide: any program, called with the same arguments; `stick_the_landing(guide)` for less noise.

    Returns:
        An inference program for the model with the objective `elbo`.

    References:
        Wingate and Weber (2013); Kingma and Welling (2014); Ranganath, Gerrish and Blei (2014).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, m): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s, m): s.sample("z", dist.Normal(m, 1.0))
        >>> loss = lambda m: sy.evaluate(sy.algorithms.svi(model, guide), jax.random.key(0), m, particles=1000).loss
        >>> bool(abs(jax.grad(loss)(0.5) - 0.5) < 0.1)
        True
    """
    return propose(model, guide, objective=objectives.elbo)


def iwae(model: Programmable, guide: Programmable) -> Propose:
    """Importance sampling, trained with the importance-weighted bound.

    Args:
        model: a target program.
        guide: any program, called with the same arguments.

    Returns:
        An inference program for the model with the objective `iwae`.

    References:
        Burda, Grosse and Salakhutdinov (2016).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.Normal(0.5, 1.0))
        >>> out = sy.evaluate(sy.algorithms.iwae(model, guide), jax.random.key(0), particles=10)
        >>> bool(out.loss == -out.log_z)
        True
    """
    return propose(model, guide, objective=objectives.iwae)


def rws(model: Programmable, guide: Programmable) -> Propose:
    """Reweighted wake-sleep: importance sampling, trained with wake updates of model and guide.

    Args:
        model: a target program.
        guide: any program, called with the same arguments.

    Returns:
        An inference program for the model with the objective `rws`.

    References:
        Bornschein and Bengio (2015); Le et al. (2019).

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, m): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s, m): s.sample("z", dist.Normal(m, 1.0))
        >>> loss = lambda m: sy.evaluate(sy.algorithms.rws(model, guide), jax.random.key(0), m, particles=1000).loss
        >>> bool(abs(jax.grad(loss)(0.5) - 0.5) < 0.1)
        True
    """
    return propose(model, detach(guide), objective=objectives.rws)
