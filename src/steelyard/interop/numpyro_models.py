"""NumPyro models as programs: one handler, which takes every site to the state of one particle."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.util import is_identically_one
from numpyro.infer.autoguide import AutoGuide
from numpyro.primitives import Messenger

from steelyard.distributions.densities import log_prob_anywhere
from steelyard.distributions.scaled import RandomBits, Scaled
from steelyard.engines.predictive import PredictiveState
from steelyard.errors import ArgumentError
from steelyard.interop.numpyro_flow import Flow
from steelyard.interop.numpyro_guides import check_guide, is_transported, transported
from steelyard.interop.numpyro_params import HANDLERS, constrained
from steelyard.language.programs import Primitive, Programmable, name_of
from steelyard.language.state import State
from steelyard.types import Key

# All of their parameters are numbers.
_SIMPLE = dist.Normal, dist.Gamma, dist.StudentT


def from_numpyro(f: Callable[..., Any], params: Mapping[str, Any] | None = None) -> Programmable:
    """Turn a NumPyro model or guide into a program.

    The log density of the program is `numpyro.infer.util.log_density` of the model. Sample sites are variables of the
    trace, and observed sites, factors and the powers of `scale` enter the weight. Discrete sites are sampled, also
    where NumPyro would enumerate them. A subsampled plate adds a variable with the indices, under its name, and
    `prng_key` one with the bits of the key: a program is a function of its trace. The value is what the model returns.
    Deterministic sites are computed by `predict`.

    Args:
        f: a NumPyro model, a guide, or one of the automatic guides `AutoNormal`, `AutoDiagonalNormal`,
            `AutoMultivariateNormal`, `AutoLowRankMultivariateNormal`, `AutoIAFNormal` and `AutoBNAFNormal`. All but the
            first of them become a `transport`, because their variables have a density only together.
        params: the values of its `param` sites and modules, from `numpyro_params`. Without them, `param` sites have
            their initial values.

    Returns:
        A program `f(s, *args)`.

    Raises:
        ArgumentError: when it runs, the model has a site that cannot be a part of a program; the message names it and
            says what to write instead. For other automatic guides, at once.

    Example:
        >>> import jax, numpyro, numpyro.distributions as dist, steelyard as sy
        >>> def model(x):
        ...     z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        ...     numpyro.sample("x", dist.Normal(z, 0.5), obs=x)
        >>> def guide(x): numpyro.sample("z", dist.Normal(0.8 * x, 0.6))
        >>> q = sy.propose(sy.from_numpyro(model), sy.from_numpyro(guide))
        >>> out = sy.evaluate(q, jax.random.key(0), 1.3, particles=1000)
        >>> bool(abs(out.expect(lambda t: t["z"]) - 1.04) < 0.06)
        True
    """
    if not callable(f):
        raise ArgumentError(f"from_numpyro: a NumPyro model is a function, got {f!r}.")
    if params is not None and not isinstance(params, Mapping):
        raise ArgumentError(
            f"from_numpyro: params is a dictionary by the names of param sites, got {type(params).__name__}. "
            f"Use params = numpyro_params(f, key, *args)."
        )
    if isinstance(f, AutoGuide):
        check_guide(f)
        if is_transported(f):
            return transported(f, params)

    @wraps(f, updated=())
    def program(s: State, *args: Any, **kwargs: Any) -> Any:
        with HANDLERS, Sites(s, params, Primitive(f).place):
            return f(*args, **kwargs)

    program.__name__ = name_of(f)
    return program


class Sites(Messenger):
    """Takes the sites of a model to the state of one particle. Handlers around it do not see them."""

    def __init__(self, s: State, params: Mapping[str, Any] | None, place: str) -> None:
        super().__init__()
        self._s = s
        self._params = params
        self._place = place
        self._keys = 0
        self._flow = Flow(s, place)

    def process_message(self, msg: dict[str, Any]) -> None:
        """Give a site its value, and the state its density."""
        msg["stop"] = True
        match msg["type"]:
            case "sample":
                self._sample(msg)
            case "param" if msg["value"] is None:
                msg["value"] = self._param(msg)
            case "control_flow":
                msg["value"] = self._flow.run(msg)
            case "plate" if msg["value"] is None:
                msg["value"] = self._s.sample(msg["name"], _Subsample(*msg["args"]))
            case "prng_key" if msg["value"] is None and msg["kwargs"]["rng_key"] is None:
                msg["value"] = self._key()
            case "deterministic" if isinstance(self._s, PredictiveState):
                self._s.keep(msg["name"], msg["value"])
            case "mutable" if msg["value"] is msg["args"][0]:
                raise ArgumentError(
                    f"{self._place}: {msg['name']!r} is mutable, but a program keeps nothing from call to call. "
                    f"Give it a fixed value: numpyro.handlers.substitute(f, data={{{msg['name']!r}: state}})."
                )

    def _sample(self, msg: dict[str, Any]) -> None:
        name, fn, value = msg["name"], msg["fn"], msg["value"]
        scale = 1.0 if msg.get("scale") is None else msg["scale"]
        scaled = not is_identically_one(scale)
        if value is not None and not self._flow.has_sampled(msg):
            fn, observed = _broadcast(fn, value)
            result = self._s.observe(name, Scaled(fn, scale) if scaled else fn, observed)
            if result is not observed:
                # A prediction, which the model goes on with.
                msg["value"] = result
            return
        if value is not None:
            fn = _drawn(fn, value)
        else:
            shape = msg["kwargs"].get("sample_shape")
            fn = _unexpanded(fn.expand_by(shape) if shape else fn)
        msg["value"] = self._s.sample(name, fn)
        if scaled:
            # The draw has the density of the distribution; its other powers are a factor, or the weight would be wrong.
            self._s.factor(f"{name}:scale", log_prob_anywhere(Scaled(fn, scale - 1.0), msg["value"]))

    def _param(self, msg: dict[str, Any]) -> Any:
        name = msg["name"]
        if self._params is not None and name in self._params:
            return constrained(name, self._params, msg)
        initial = msg["args"][0] if msg["args"] else None
        if self._params is not None or initial is None:
            raise ArgumentError(
                f"{self._place}: the parameter {name!r} has no value. Use from_numpyro(f, params), where "
                f"params = numpyro_params(f, key, *args) has the initial values of all parameters."
            )
        return initial

    def _key(self) -> Key:
        self._keys += 1
        bits = self._s.sample("prng_key" if self._keys == 1 else f"prng_key_{self._keys}", RandomBits())
        return jax.random.wrap_key_data(bits, impl="threefry2x32")


class _Subsample:
    """The indices of a subsampled plate. Their density is one with respect to the uniform distribution of them."""

    has_rsample = True

    def __init__(self, size: int, subsample_size: int) -> None:
        self._size = size
        self.batch_shape, self.event_shape = (), (subsample_size,)

    def sample(self, key: Key) -> Any:
        return jax.random.permutation(key, self._size)[: self.event_shape[0]]

    def log_prob(self, value: Any) -> Any:
        return jnp.zeros(())


def _broadcast(fn: dist.Distribution, value: Any) -> tuple[dist.Distribution, Any]:
    """Return a distribution and an observed value of the same shape: NumPyro lets them broadcast."""
    shape, event = jnp.shape(value), fn.event_shape
    batch = jnp.broadcast_shapes(shape[: len(shape) - len(event)], fn.batch_shape)
    if not fn.batch_shape or (batch == fn.batch_shape and shape == batch + event):
        return fn, value
    return fn if batch == fn.batch_shape else fn.expand(batch), jnp.broadcast_to(value, batch + event)


def _unexpanded(fn: dist.Distribution) -> dist.Distribution:
    """Return a distribution that a plate expanded as one with more parameters, where draws are faster then."""
    if type(fn) is not dist.ExpandedDistribution or type(fn.base_dist) not in _SIMPLE:
        return fn
    base: Any = fn.base_dist
    return type(base)(**{name: jnp.broadcast_to(getattr(base, name), fn.batch_shape) for name in base.arg_constraints})


def _drawn(fn: dist.Distribution, value: Any) -> dist.Distribution:
    """Return a distribution, of which a value was drawn already."""
    # A copy that says `sample` itself, so that it stays a distribution of its class with its support.
    new: Any = copy.copy(fn)
    new.sample = lambda key, sample_shape=(): value
    return new
