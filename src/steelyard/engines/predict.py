"""Predictions: a model run forward from particles, with new data in the place of those that it observes."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxtyping import PRNGKeyArray

from steelyard.arguments import check_key
from steelyard.engines.abstract import explained
from steelyard.engines.gathering import as_objects
from steelyard.engines.predictive import PredictiveState
from steelyard.engines.universal import Universal
from steelyard.engines.vectorized import Vectorized
from steelyard.errors import AddressError, ArgumentError
from steelyard.language.describe import describe
from steelyard.language.programs import Programmable
from steelyard.language.rewrite import target
from steelyard.maps import Domain, Map, dom
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values, dense
from steelyard.types import EngineName


def predict(
    model: Programmable,
    key: PRNGKeyArray,
    *args: Any,
    posterior: Evaluation,
    only: Iterable[str] | None = None,
    engine: EngineName = "vectorized",
) -> Map[Any]:
    """Draw new data from a model, for each particle of a posterior.

        y_l ~ p(y | tau_l, args)    for each particle l

    Variables of the model that a particle holds have its value; others are drawn as in the model. What the model
    observes is drawn anew, in the shape of the data that it is called with, and the model goes on with that draw. Data
    that are not known may be None: then one draw of the distribution is made. Factors, scales and powers change how
    data count, not how they come about: they are left out.

    A draw has the weight of its particle. An expectation under the predictive distribution is

        E[h(y)] ~ sum_l w_l h(y_l),    w = posterior.normalized_weights

    For equally weighted predictions resample first: `posterior=out.resample(key)`.

    Args:
        model: a program; of an inference program, the program whose density it denotes runs.
        key: a key made by `jax.random.key`.
        *args: what the model is called with: the data, or new ones of other sizes.
        posterior: what `evaluate` returned for this model, or for one that has variables in common with it.
        only: the addresses to return; all that were drawn, if None.
        engine: as for `evaluate`.

    Returns:
        A map from address to draws, with the particle axis first. Of a NumPyro model it also has the deterministic
        sites; those that depend on data are computed from the new ones.

    Raises:
        AddressError: posterior and model have no variable in common, or nothing was drawn at an address in `only`.
        ArgumentError: something observed has a distribution that cannot be drawn from, or an argument is of the wrong
            kind.
        GrammarError: the program whose density the model denotes is not known.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.1), x)
        >>> out = sy.evaluate(model, jax.random.key(0), jnp.array([1.3, 1.2]), particles=1000)
        >>> new = sy.predict(model, jax.random.key(1), jnp.zeros(3), posterior=out)
        >>> new["x"].shape, bool(abs(out.normalized_weights @ new["x"][:, 0] - 1.25) < 0.1)
        ((1000, 3), True)
    """
    p, key = target(model), check_key(key, "predict")
    if not isinstance(posterior, Evaluation) or posterior.log_weight.ndim != 1:
        raise ArgumentError("predict: posterior is what evaluate returned, one population. Use jax.vmap over a batch.")
    tau, particles, shared = posterior.trace, posterior.particles, Values.shared(args)
    if engine == "vectorized":
        with explained(p):
            e = Vectorized(key, particles, state=PredictiveState).run(p, shared, tau)
    elif engine == "universal":
        e = Universal(key, particles, state=PredictiveState).run(p, shared, as_objects(tau, particles))
    else:
        raise ArgumentError(f'predict: engine is "vectorized" or "universal", got {engine!r}.')
    if tau and not set(tau) & set(e.trace):
        raise AddressError(
            f"predict: the posterior has {', '.join(map(repr, tau))}, and {describe(p)} samples "
            f"{', '.join(map(repr, e.trace)) or 'nothing'}: none in common. Use the posterior of this model, or rename."
        )
    drawn = e.pointwise | e.trace.restrict(dom(e.trace) - dom(tau))
    if engine == "universal":
        drawn = Map({a: dense(v) for a, v in drawn.items()}, drawn.masks)
    wanted = list(drawn) if only is None else list(only)
    if missing := [a for a in wanted if a not in drawn]:
        raise AddressError(
            f"predict: nothing was drawn at {missing[0]!r}; there are draws at "
            f"{', '.join(map(repr, drawn)) or 'no address'}. What the posterior holds is in posterior.trace."
        )
    return drawn.restrict(Domain(dict.fromkeys(wanted, True)))
