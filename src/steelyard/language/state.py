"""The state that a program samples and observes through: one particle's trace and densities."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from steelyard.arguments import check_scale
from steelyard.distributions.coordinates import located
from steelyard.distributions.densities import Density, computed, log_prob, log_prob_anywhere, scaled
from steelyard.distributions.distribution import (
    check_distribution,
    check_observed,
    check_proposed,
    is_reparameterized,
    without_gradient,
)
from steelyard.distributions.origins import Origin, origin_of
from steelyard.distributions.placeholders import placeholder
from steelyard.errors import AddressError, ArgumentError, SteelyardError
from steelyard.language.addresses import check_address
from steelyard.language.programs import Primitive
from steelyard.maps import Map, both, invert, select
from steelyard.types import Distribution, Mask, is_traced, stop_gradient

Draw = Callable[[int, str, Distribution], Any]


class State:
    """What a program `f(s, *args)` gets as its first argument: it belongs to one particle and one run.

    Programs call `sample`, `observe`, `factor` and `when` on it; the engines make it and read it.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s: sy.State, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        ...     return z
        >>> sy.evaluate(model, jax.random.key(0), 1.3, particles=5).trace["z"].shape
        (5,)
    """

    def __init__(
        self,
        draw: Draw,
        given: Map[Any],
        place: str,
        *,
        concrete: bool,
        detached: bool = False,
        sticks: bool = False,
        power: Any = 1.0,
        density: Density = computed,
    ) -> None:
        self._draw = draw
        self._density = density
        self._given = given
        self._place = place
        self._concrete = concrete
        self._detached = detached
        self._sticks = sticks
        self._power = power
        self._score: Any = None
        self._present: Mask = True
        self._site = 0
        self._seen: set[str] = set()
        self._trace: dict[str, Any] = {}
        self._log_density: dict[str, Any] = {}
        self._masks: dict[str, Mask] = {}
        self._origins: dict[str, Origin | None] = {}
        self._terms: dict[str, Any] = {}

    def sample(self, address: str, distribution: Distribution | Any) -> Any:
        """Sample an unobserved variable, or reuse the value that was proposed for it.

        Args:
            address: the name of the variable, used once in a program.
            distribution: anything with `sample(key)`, or `sample(seed=key)`, and `log_prob(value)`.

        Returns:
            The value, for one particle.

        Raises:
            AddressError: the address was used before in this program, or the proposed value has another shape.
            ArgumentError: no value was proposed, and the distribution cannot be drawn from.
        """
        self._enter(address, distribution)
        self._site += 1
        present, reused = self._present, self._given.present(address)
        if present is False:
            return self._drawn(address, distribution, lambda: placeholder(distribution))
        scored = self._detached or not is_reparameterized(distribution)
        value = None
        if reused is not True:
            drawn = self._drawn(address, distribution, lambda: self._draw(self._site, address, distribution))
            value = stop_gradient(drawn, scored)
        given = None
        if reused is not False:
            given = located(self._given[address], distribution, address, self._place)
            proposed = check_proposed(distribution, given.value, address, self._place)
            value = proposed if reused is True else select(reused, proposed, value)
        if present is not True:
            fixed = self._drawn(address, distribution, lambda: placeholder(distribution))
            value = select(present, value, fixed)
        self._trace[address] = value if given is None or given.position is None else given.position.where(present)
        self._origins[address] = origin_of(distribution)
        here = log_prob if reused is False else log_prob_anywhere
        log_density = self._density(here, distribution if scored else self._landing(distribution, address), value)
        self._record(address, log_density if given is None else log_density + given.log_det)
        if scored and reused is not True:
            self._add_score(select(both(present, invert(reused)), log_density, 0.0))
        return value

    def observe(self, address: str, distribution: Distribution | Any, value: Any, *, scale: Any = 1.0) -> Any:
        """Condition on an observed value; its density, the sum of all that `log_prob` returns, enters the weight.

        Args:
            address: the name of the variable, used once in a program.
            distribution: anything with `log_prob(value)`.
            value: what was observed: of the shape of a draw or, if the distribution is that of one event, with any
                axes of data in front. A list becomes an array.
            scale: a positive number that the log density is multiplied by. If the value is a random tenth of the data,
                `scale=10` makes the log density an unbiased estimate of that of all data. One that JAX is tracing is
                not checked.

        Returns:
            The value.

        Raises:
            AddressError: the address was used before in this program, or the value has another shape.
            ArgumentError: the scale is not a positive, finite number.
        """
        self._enter(address, distribution)
        value = check_observed(distribution, value, address, self._place)
        scale = check_scale(scale, f"{self._place}: {address!r}")
        if self._present is not False:
            log_density = self._density(log_prob_anywhere, distribution, value)
            self._record(address, self._tempered(scaled(log_density, scale)))
        return value

    def factor(self, address: str, log_value: Float[Array, ""] | float) -> None:
        """Multiply the density by exp(log_value), like an observed variable that has this density.

        Args:
            address: a name for the factor, used once in a program.
            log_value: its logarithm, a scalar for one particle.

        Raises:
            AddressError: the address was used before in this program.
            ArgumentError: the value is not a scalar.
        """
        self._claim(address)
        if np.ndim(log_value) != 0:
            raise ArgumentError(
                f"{self._place}: the factor {address!r} has shape {np.shape(log_value)}; "
                f"a factor is one number for one particle. Sum it, if all of it belongs in the density."
            )
        if self._present is not False:
            self._record(address, self._tempered(log_value))

    @contextmanager
    def when(self, flag: Bool[Array, ""] | bool) -> Iterator[None]:
        """Make the variables inside the block exist only in the particles where `flag` holds.

        The block runs for every particle. Where `flag` does not hold its variables are in neither trace nor density,
        and `sample` returns a fixed value of the distribution, so that the program stays a function of its trace.

        Args:
            flag: a Boolean scalar, which may depend on what was sampled.

        Example:
            >>> import jax, numpyro.distributions as dist, steelyard as sy
            >>> def model(s):
            ...     is_outlier = s.sample("is_outlier", dist.Bernoulli(0.2))
            ...     with s.when(is_outlier == 1):
            ...         s.sample("shift", dist.Normal(0.0, 10.0))
            >>> out = sy.evaluate(model, jax.random.key(0), particles=6)
            >>> bool((out.trace.present("shift") == (out.trace["is_outlier"] == 1)).all())
            True
        """
        if np.ndim(flag) != 0:
            raise ArgumentError(
                f"{self._place}: when() takes one Boolean for one particle, got shape {np.shape(flag)}."
            )
        outer = self._present
        if isinstance(flag, bool | np.bool_) or self._concrete and not is_traced(flag):
            flag = bool(flag)
        # For all particles at once, the addresses of a program do not depend on the value of a flag.
        known = flag is True or flag is False and self._concrete
        self._present = both(outer, flag if known else jnp.asarray(flag, bool))
        try:
            yield
        finally:
            self._present = outer

    def _enter(self, address: str, distribution: Any) -> None:
        self._claim(address)
        check_distribution(distribution, address, self._place)

    def _claim(self, address: str) -> None:
        check_address(address, self._place)
        # A program that runs on concrete values may use an address in either branch of a condition.
        if self._present is False:
            return
        if address in self._seen:
            raise AddressError(
                f"{self._place}: the address {address!r} is used twice. Give each variable its own address, "
                f"for example f'{address}{{i}}' in a loop."
            )
        self._seen.add(address)

    def _record(self, address: str, log_density: Any) -> None:
        self._log_density[address] = select(self._present, log_density, 0.0)
        if self._present is not True:
            self._masks[address] = self._present

    def _tempered(self, log_density: Any) -> Any:
        power = self._power
        if isinstance(power, float) and power == 1:
            return log_density
        # Anything to the power of zero is one, zero too.
        return select((log_density == -np.inf) & (power == 0), 0.0, log_density) * power

    def _drawn(self, address: str, distribution: Any, draw: Callable[[], Any]) -> Any:
        try:
            return draw()
        except NotImplementedError as error:
            raise ArgumentError(
                f"{self._place}: {address!r} has the distribution {type(distribution).__name__}, which cannot be drawn "
                f"from. Propose a value for it: propose(p, guide), where p is this program and guide samples "
                f"{address!r} from another distribution."
            ) from error

    def _landing(self, distribution: Any, address: str) -> Any:
        """Return the distribution that the density is evaluated with."""
        if not self._sticks:
            return distribution
        if jax.tree.structure(distribution) == jax.tree.structure(0):
            raise ArgumentError(
                f"{self._place}: stick_the_landing stops the gradients of parameters, but {distribution!r} at "
                f"{address!r} is not a pytree that shows them. Register it with jax.tree_util, or use NumPyro's."
            )
        return without_gradient(distribution)

    def _add_score(self, log_density: Any) -> None:
        self._score = log_density if self._score is None else self._score + log_density

    def _masked(self, values: dict[str, Any]) -> Map[Any]:
        return Map(values, {a: m for a, m in self._masks.items() if a in values})

    def _run(self, value: Any) -> "Run":
        trace = replace(self._masked(self._trace), origins=self._origins)
        return Run(value, trace, self._masked(self._log_density), self._score, self._masked(self._terms))


class Run(NamedTuple):
    """What one particle of a primitive program gave.

    `score` is the log density of the variables that were drawn and are not reparameterised; None, if there are none.
    `terms` has what a state keeps by observed address: densities by observation, or predictions.
    """

    value: Any
    trace: Map[Any]
    log_density: Map[Any]
    score: Any
    terms: Map[Any] = Map()


def run(
    f: Primitive,
    args: tuple[Any, ...],
    draw: Draw,
    given: Map[Any],
    *,
    concrete: bool,
    density: Density = computed,
    state: Callable[..., State] = State,
) -> Run:
    """Run a primitive program for one particle, which samples and observes through this kind of state."""
    options = {"detached": f.detached, "sticks": f.sticks, "power": f.power, "density": density}
    s = state(draw, given, f.place, concrete=concrete, **options)
    try:
        value = f.f(s, *args)
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, SteelyardError) or not any(x is None for x in args):
            raise
        raise ArgumentError(
            f"{f.place} was called with None, which is what the program before it returned. "
            f"Let that program return the value that this one needs."
        ) from error
    return s._run(value)
