"""NumPyro's automatic guides: all variables are one function of one vector of noise, which is a transport."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import autoguide
from numpyro.primitives import Messenger

from steelyard.errors import ArgumentError
from steelyard.interop.numpyro_params import HANDLERS, constrained
from steelyard.language.kernels import transport
from steelyard.language.programs import Transport
from steelyard.language.state import State

_TRANSPORTED = (
    autoguide.AutoDiagonalNormal,
    autoguide.AutoMultivariateNormal,
    autoguide.AutoLowRankMultivariateNormal,
    autoguide.AutoIAFNormal,
    autoguide.AutoBNAFNormal,
)


def check_guide(guide: autoguide.AutoGuide) -> None:
    """Raise `ArgumentError` unless the densities of an automatic guide are known, and it is set up."""
    name = type(guide).__name__
    if isinstance(guide, autoguide.AutoDelta):
        raise ArgumentError(
            "from_numpyro: AutoDelta puts everything on one point, which has no density to weigh proposals with. Use "
            "AutoNormal; for the density at the point use log_density(model, {address: value}, *args)."
        )
    if not isinstance(guide, (autoguide.AutoNormal, *_TRANSPORTED)):
        known = ", ".join(c.__name__ for c in (autoguide.AutoNormal, *_TRANSPORTED))
        raise ArgumentError(
            f"from_numpyro: the density of {name} is not known here. Use one of {known}, or write the guide out."
        )
    if guide.prototype_trace is None:
        raise ArgumentError(
            f"from_numpyro: this {name} is not set up: it has not seen its model yet. Call "
            f"params = numpyro_params(guide, key, *args) first, and use from_numpyro(guide, params)."
        )


def is_transported(guide: autoguide.AutoGuide) -> bool:
    """Tell whether the variables of a guide have a density only together."""
    return isinstance(guide, _TRANSPORTED)


def transported(guide: Any, params: Mapping[str, Any] | None) -> Transport:
    """Return a guide as standard normal noise for each variable, transported by what the guide learned.

    The noise of all variables, one after the other, is the vector that the guide transforms; each variable then is its
    part of the result, mapped to its support.
    """
    values = _Values(params)
    with HANDLERS, handlers.block(), values, handlers.seed(rng_seed=0):
        names = list(guide())
        transform = guide.get_transform(values.found)
    supports = {name: biject_to(guide.prototype_trace[name]["fn"].support) for name in names}
    shapes = {name: supports[name].inverse_shape(np.shape(guide.prototype_trace[name]["value"])) for name in names}

    def noise(s: State, *args: Any) -> None:
        for name, shape in shapes.items():
            s.sample(name, dist.Normal(jnp.zeros(shape), jnp.ones(shape)))

    noise.__name__ = type(guide).__name__
    return transport(_Learned(type(guide).__name__, transform, supports, shapes), noise, only=names)


@dataclass(frozen=True)
class _Learned:
    """The bijection of a guide: from the noise of all variables to their values."""

    name: str
    transform: Any
    supports: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    def forward_and_log_det(self, values: Any) -> tuple[Any, Any]:
        values = self._by_name(values)
        x = jnp.concatenate([jnp.ravel(values[name]) for name in self.shapes])
        y, intermediates = self.transform.call_with_intermediates(x)
        log_det = jnp.sum(self.transform.log_abs_det_jacobian(x, y, intermediates))
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes.values()])
        results = {}
        for (name, shape), part in zip(self.shapes.items(), jnp.split(y, ends[:-1]), strict=True):
            u = part.reshape(shape)
            results[name] = self.supports[name](u)
            log_det += jnp.sum(self.supports[name].log_abs_det_jacobian(u, results[name]))
        return self._as_given(results), log_det

    def inverse_and_log_det(self, values: Any) -> tuple[Any, Any]:
        values = self._by_name(values)
        u = {name: self.supports[name].inv(values[name]) for name in self.shapes}
        log_det = sum(jnp.sum(self.supports[name].log_abs_det_jacobian(u[name], values[name])) for name in self.shapes)
        y = jnp.concatenate([jnp.ravel(u[name]) for name in self.shapes])
        try:
            x = self.transform.inv(y)
        except NotImplementedError as error:
            raise ArgumentError(
                f"{self.name}: its density is known at its own draws only, because NumPyro has no inverse of it. "
                f"Use AutoIAFNormal where a density is asked for elsewhere, as by detach, forward_kl and log_density."
            ) from error
        log_det += jnp.sum(self.transform.log_abs_det_jacobian(x, y))
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes.values()])
        parts = zip(self.shapes.items(), jnp.split(x, ends[:-1]), strict=True)
        return self._as_given({name: part.reshape(shape) for (name, shape), part in parts}), -log_det

    def _by_name(self, values: Any) -> dict[str, Any]:
        return {next(iter(self.shapes)): values} if len(self.shapes) == 1 else values

    def _as_given(self, values: dict[str, Any]) -> Any:
        return values if len(self.shapes) > 1 else next(iter(values.values()))


class _Values(Messenger):
    """Gives the parameters of a guide their values, and keeps them by name."""

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        super().__init__()
        self._params = params
        self.found: dict[str, Any] = {}

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "param" and msg["value"] is None and self._params is not None and msg["name"] in self._params:
            msg["value"] = constrained(msg["name"], self._params, msg)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "param" and msg["value"] is not None:
            self.found[msg["name"]] = msg["value"]
