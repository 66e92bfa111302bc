"""How one particle is moved by a Markov kernel of BlackJAX's form: `init(position)` and `step(key, state)`."""

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from steelyard.distributions.coordinates import Position
from steelyard.engines.positions import placed
from steelyard.language.programs import Mcmc
from steelyard.maps import Map, dom, select
from steelyard.semantics import markov_conditions as conditions
from steelyard.semantics.engine import Moved, Trace
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

# The evaluation of a program for one particle, at a trace.
At: TypeAlias = Callable[[Trace], Evaluation]
# A function of how a program is evaluated at a trace, of keys by number, and of the trace of one particle.
Transition: TypeAlias = Callable[[At, Callable[[Any], Any], Trace], Moved]


def walk(q: Mcmc, sees_all: bool, at: At, keys: Callable[[Any], Any], tau: Trace) -> Moved:
    """Move one particle by the kernel of q, in unconstrained coordinates.

    Args:
        q: the program that has the kernel.
        sees_all: whether the addresses of the trace are all that there can be.
        at: evaluates, for this particle, the program to leave invariant at a trace.
        keys: a key for each step, by number.
        tau: where the particle is.
    """

    def named(values: dict[str, Any]) -> Trace:
        return Map({**{a: tau[a] for a in tau}, **values}, tau.masks)

    start = at(placed(tau, q.only)).trace
    position = {a: start[a].coordinates for a in start if isinstance(start[a], Position)}
    conditions.check_moved_by(q, tau, position, sees_all=sees_all)
    if not position or q.steps == 0:
        return Moved(Map(), jnp.zeros(()))

    # Relative to where it starts, address by address: large numbers that stay the same must not drown the others.
    first = at(named({a: Position(x) for a, x in position.items()})).log_density
    offsets = {a: jnp.where(jnp.isfinite(x), x, 0.0) for a, x in first.items()}

    def log_density(position: dict[str, Any]) -> Any:
        e = at(named({a: Position(x) for a, x in position.items()}))
        here = dict(e.log_density.items())
        total = sum((here.get(a, 0.0) - offsets.get(a, 0.0) for a in {**offsets, **here}), start=jnp.zeros(()))
        for domain in (dom(e.trace) - dom(tau), dom(tau) - dom(e.trace)):
            for mask in domain.values():
                total = select(mask, -jnp.inf, total)
        # A density that is no number cannot be compared: nothing moves there.
        return jnp.where(total < jnp.inf, total, -jnp.inf)

    init, step = conditions.check_kernel(q, q.kernel(log_density))
    state = init(position, keys(0)) if _takes_key(init) else init(position)
    conditions.check_state(q, state, position)

    def one(state: Any, number: Any) -> tuple[Any, Any]:
        after, info = step(keys(number), state)
        return after, _acceptance(info, state.position, after.position)

    if is_traced(jax.tree.leaves(position)[0]):
        state, rates = jax.lax.scan(one, state, jnp.arange(1, q.steps + 1))
    else:
        rates = []
        for number in range(1, q.steps + 1):
            state, rate = one(state, number)
            rates.append(rate)
    # Who did not move stays where it is to the last bit. There is no way to a place that is no number.
    moved = _differs(position, state.position) & _is_finite(state.position)
    new = at(named({a: Position(x) for a, x in state.position.items()})).trace
    return Moved(Map({a: select(moved, new[a], tau[a]) for a in position}), jnp.mean(jnp.asarray(rates)))


def _takes_key(init: Callable[..., Any]) -> bool:
    """Tell whether a kernel begins at random: `init(position, key)`."""
    try:
        parameters = inspect.signature(init).parameters.values()
    except ValueError:
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([x for x in parameters if x.kind in positional]) > 1


def _acceptance(info: Any, before: Any, after: Any) -> Any:
    """Return the acceptance probability that a kernel tells; or else whether it moved."""
    for name in ("acceptance_rate", "is_accepted"):
        if (rate := getattr(info, name, None)) is not None:
            return jnp.asarray(rate, float)
    return jnp.asarray(_differs(before, after), float)


def _differs(before: Any, after: Any) -> Any:
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return reduce(jnp.logical_or, (jnp.any(x != y) for x, y in pairs), jnp.asarray(False))


def _is_finite(position: Any) -> Any:
    return reduce(jnp.logical_and, (jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(position)))
