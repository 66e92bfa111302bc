"""The parameters of NumPyro models and guides, as a pytree of unconstrained numbers."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import biject_to, constraints

from steelyard.errors import ArgumentError
from steelyard.language.programs import Primitive
from steelyard.types import Key, is_traced

# NumPyro keeps its handlers in one list for the whole process: two threads that trace at once would mix their sites.
HANDLERS = threading.RLock()


def numpyro_params(f: Callable[..., Any], key: Key, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the initial parameters of a NumPyro model or guide: what `train` learns and `from_numpyro` takes.

    The model runs once, so that its `param` sites, modules and automatic guides are set up. A parameter with a
    constraint is held by its unconstrained coordinates, `biject_to(constraint).inv(value)`; `from_numpyro` maps them
    back. So any gradient step keeps the constraint.

    Args:
        f: a NumPyro model or guide; an automatic guide too.
        key: a key for initial values that are random.
        *args: the arguments of the model.
        **kwargs: its keyword arguments.

    Returns:
        The parameters by the names of their sites. Parameters that were learned elsewhere, such as those of NumPyro's
        SVI, come in by `numpyro_params(numpyro.handlers.substitute(f, data=values), key, *args)`.

    Raises:
        ArgumentError: an initial value lies outside of its constraint, or on its edge.

    Example:
        >>> import jax, numpyro, numpyro.distributions as dist, steelyard as sy
        >>> def guide():
        ...     scale = numpyro.param("scale", 2.0, constraint=dist.constraints.positive)
        ...     numpyro.sample("z", dist.Normal(0.0, scale))
        >>> print(f"{sy.numpyro_params(guide, jax.random.key(0))['scale']:.4f}")
        0.6931
    """
    if not callable(f):
        raise ArgumentError(f"numpyro_params: a NumPyro model is a function, got {f!r}.")
    with HANDLERS, handlers.block(), handlers.trace() as sites, handlers.seed(rng_seed=key):
        f(*args, **kwargs)
    # A module asks for its parameters before it makes them: the first answer is None.
    found = {name: site for name, site in sites.items() if site["type"] == "param" and site["value"] is not None}
    return {name: _unconstrained(f, name, site) for name, site in found.items()}


def constrained(name: str, params: Mapping[str, Any], site: dict[str, Any]) -> Any:
    """Return the value of a parameter, from its unconstrained coordinates."""
    # A copy of the containers, because NumPyro's random modules write into them.
    value = jax.tree.map(lambda x: x, params[name])
    constraint = _constraint(site)
    return value if constraint is None else biject_to(constraint)(value)


def _unconstrained(f: Any, name: str, site: dict[str, Any]) -> Any:
    value = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, float | int) else x, site["value"])
    if (constraint := _constraint(site)) is None:
        return jax.tree.map(lambda x: x, value)
    coordinates: Any = biject_to(constraint).inv(jnp.asarray(value, float))
    if not is_traced(coordinates) and not jnp.isfinite(coordinates).all():
        raise ArgumentError(
            f"{Primitive(f).place}: the parameter {name!r} starts at {value}, which is not inside of its constraint "
            f"{constraint!r}. Give param an initial value from the inside."
        )
    return coordinates


def _constraint(site: dict[str, Any]) -> Any:
    constraint = site["kwargs"].get("constraint", constraints.real)
    inside = constraint
    while isinstance(inside, constraints.independent):
        inside = inside.base_constraint
    return None if isinstance(inside, type(constraints.real)) else constraint
