"""Programs as NumPyro models: a state that hands every variable to NumPyro."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.util import is_identically_one

from steelyard.arguments import check_scale
from steelyard.distributions.densities import log_prob_anywhere
from steelyard.distributions.distribution import check_observed, sample
from steelyard.distributions.scaled import Scaled
from steelyard.errors import ArgumentError
from steelyard.language.addresses import previous
from steelyard.language.describe import describe, expected
from steelyard.language.programs import Extend, Prev, Primitive, Program, Programmable, Rename, is_target, program
from steelyard.language.state import State
from steelyard.maps import Map, select

_Name = Callable[[str], str]


def to_numpyro(p: Programmable) -> Callable[..., Any]:
    """Turn a target program into a NumPyro model of the same density, so that NUTS runs on it.

    Args:
        p: a target program: a callable, an `extend`, `rename`, `prev` or `temper` of such. Its distributions are
            NumPyro's.

    Returns:
        A NumPyro model `model(*args)`. Variables are sample sites under their addresses.

    Raises:
        GrammarError: p is not a target program.
        ArgumentError: when it runs, a distribution is not NumPyro's, or a variable exists in some particles only.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> from numpyro.infer.util import log_density
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        >>> total, _ = log_density(sy.to_numpyro(model), (1.3,), {}, {"z": 0.4})
        >>> bool(abs(total - sy.log_density(model, {"z": 0.4}, 1.3)) < 1e-5)
        True
    """
    p = program(p)
    if not is_target(p):
        raise expected("to_numpyro(p)", "p", "a target program: a callable, or an extend", p, "to_numpyro(target(q))")

    def model(*args: Any) -> Any:
        return _run(p, args, lambda address: address)

    model.__name__ = describe(p)
    return model


def _run(p: Program, args: tuple[Any, ...], name: _Name) -> Any:
    """Run a target program with NumPyro's sites, under the names that its addresses have outside."""
    match p:
        case Primitive():
            return p.f(_Sites(p, name), *args)
        case Prev():
            return _run(p.f, args, lambda a: name(previous(a)))
        case Rename():
            return _run(p.q, args, lambda a: name(p.new.get(a, a)))
        case Extend():
            return _run(p.f, (_run(p.p, args, name),), name)
    raise ArgumentError(f"to_numpyro: {describe(p)} is not a target program.")


class _Sites(State):
    """A state that makes NumPyro's sites. Values and densities are NumPyro's."""

    def __init__(self, f: Primitive, name: _Name) -> None:
        super().__init__(_no_draw, Map(), f.place, concrete=True, power=f.power)
        self._name = name

    def sample(self, address: str, distribution: Any) -> Any:
        self._enter(address, distribution)
        if self._present is False:
            return sample(distribution, jax.random.key(0))
        if self._present is not True:
            raise ArgumentError(
                f"{self._place}: {address!r} exists only where the flag of s.when holds, but a variable "
                f"of a NumPyro model always exists. Take the variable out of s.when; what is observed may stay."
            )
        return numpyro.sample(self._name(address), self._of_numpyro(address, distribution))

    def observe(self, address: str, distribution: Any, value: Any, *, scale: Any = 1.0) -> Any:
        self._enter(address, distribution)
        value = check_observed(distribution, value, address, self._place)
        scale = check_scale(scale, f"{self._place}: {address!r}")
        fn = self._of_numpyro(address, distribution)
        fn = fn if is_identically_one(scale) else Scaled(fn, scale)
        if self._is_tempered():
            self._add(address, self._tempered(log_prob_anywhere(fn, value)))
        elif self._present is not False:
            shown = fn if self._present is True else fn.mask(jnp.asarray(self._present))
            numpyro.sample(self._name(address), shown, obs=value)
        return value

    def factor(self, address: str, log_value: Any) -> None:
        super().factor(address, log_value)
        self._add(address, self._tempered(log_value))

    def _add(self, address: str, log_value: Any) -> None:
        if self._present is not False:
            numpyro.factor(self._name(address), select(self._present, log_value, 0.0))

    def _is_tempered(self) -> bool:
        return not (isinstance(self._power, float) and self._power == 1)

    def _of_numpyro(self, address: str, distribution: Any) -> dist.Distribution:
        if isinstance(distribution, dist.Distribution):
            return distribution
        raise ArgumentError(
            f"{self._place}: {address!r} has the distribution {type(distribution).__name__}, which is not one of "
            f"NumPyro's. Use a distribution of numpyro.distributions there."
        )


def _no_draw(site: int, address: str, distribution: Any) -> Any:
    raise ArgumentError(f"to_numpyro: {address!r} is drawn by NumPyro.")
