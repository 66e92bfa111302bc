"""Backward sampling: whole trajectories from the particles that a filter had at each step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from steelyard.estimates.ancestry import Kept
from steelyard.estimates.categorical import choose
from steelyard.maps import take
from steelyard.particles.resampling import ancestors, draw_noise
from steelyard.types import Key

# So many densities are computed at a time: draws beyond that wait, so that memory does not grow with their number.
AT_ONCE = 2**20
ROUNDING = 1e-5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Equations:
    """A function of arrays whose constants are known: it outlives the trace of the program that it was read off."""

    constants: Any
    jaxpr: Jaxpr = field(metadata={"static": True})

    def __call__(self, *arguments: Any) -> list[Any]:
        return jaxpr_as_fun(ClosedJaxpr(self.jaxpr, self.constants))(*jax.tree.leaves(arguments))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transitions:
    """How a filter goes from one step to the next, for one particle.

    Attributes:
        first: from the variables before the first step to what the program there returned.
        value: from x, what the step before returned, and the variables of a step, to what the step returned.
        terms: from the same to those terms of the log density of the step that depend on the step before.
        xs: what the steps are called with.
    """

    first: Equations
    value: Equations
    terms: Equations
    xs: Any

    def log_density(self, x: Any, before: Any, variables: Any) -> Any:
        """Return the log density of the variables of a step, up to what does not depend on the step before."""
        return sum(self.terms(x, before, variables), start=jnp.zeros(()))


@partial(jax.jit, static_argnames="draws")
def backward(transitions: Transitions, kept: Kept, key: Key, bound: Any, draws: int) -> tuple[dict[str, Any], Any, Any]:
    """Draw trajectories, from the last step to the first.

        i_T ~ w_T,    i_t ~ w_t^i p(z_{t+1}, y_{t+1} | z_t^i)

    Args:
        transitions: the program.
        kept: the particles of each step.
        key: a key.
        bound: for each transition the largest log density; None to compute the densities of all particles.
        draws: how many.

    Returns:
        By address the draws, with the axes draw and step; and for each draw whether it was possible, and whether all
        densities that were computed for it were within the bound.
    """
    every = jax.tree.map(lambda x0, xs: jnp.concatenate([x0[None], xs]), kept.first, kept.values)
    log_weight = jnp.concatenate([kept.first_log_weight[None], kept.log_weight])
    keys = jax.random.split(key, len(log_weight))

    def back(later: Any, now: Any) -> Any:
        variables, possible, bounded = later
        x, before, log_weight, values, key, bound = now
        pairs = Pairs(partial(transitions.log_density, x), before, variables, log_weight)
        found = exact(pairs, key, draws) if bound is None else by_rejection(pairs, key, bound, draws)
        chosen = take(values, found.index)
        return (chosen, possible & found.possible, bounded & found.bounded), chosen

    begin = jax.vmap(choose, (None, 0))(log_weight[-1], _uniforms(keys[-1], draws, log_weight))
    last = take(jax.tree.map(lambda x: x[-1], every), begin.index)
    earlier = jax.tree.map(lambda x: x[:-1], (log_weight, every, keys))
    steps = transitions.xs, _returned(transitions, kept), *earlier, bound
    start = last, begin.possible, jnp.ones(draws, bool)
    (_, possible, bounded), found = jax.lax.scan(back, start, steps, reverse=True)
    whole = jax.tree.map(lambda xs, x: jnp.moveaxis(jnp.concatenate([xs, x[None]]), 0, 1), found, last)
    return whole, possible, bounded


class Pairs(NamedTuple):
    """The particles of one step and the draws of the next: which of them led to which?

    Attributes:
        log_density: of the variables of the later step, from what the earlier one returned.
        before: what the earlier step returned, for each particle.
        variables: the variables of the later step, for each draw.
        log_weight: the log weights of the particles.
    """

    log_density: Callable[[Any, Any], Any]
    before: Any
    variables: Any
    log_weight: Any

    def log_weights(self, variables: Any) -> Any:
        """Return the log weight of each particle as the one before these variables."""
        return self.log_weight + jax.vmap(lambda c: self.log_density(c, variables))(self.before)


class Found(NamedTuple):
    """Particles that were drawn, and whether that was possible and kept within the bound."""

    index: Any
    possible: Any
    bounded: Any


def exact(pairs: Pairs, key: Key, draws: int) -> Found:
    """Draw with the densities of all particles."""
    size = max(1, min(draws, AT_ONCE // len(pairs.log_weight)))
    each = _uniforms(key, draws, pairs.log_weight), pairs.variables
    one = jax.lax.map(lambda pair: choose(pairs.log_weights(pair[1]), pair[0]), each, batch_size=size)
    return Found(one.index, one.possible, jnp.ones(draws, bool))


def by_rejection(pairs: Pairs, key: Key, bound: Any, draws: int) -> Found:
    """Propose particles by their weights, and accept them by their densities; the same law as `exact`.

    Douc, Garivier, Moulines and Olsson (2011). When so few draws are left that the densities of all particles for them
    cost no more than another try for all, they are drawn in this way, as Taghavi et al. (2013) do. Whether a draw is
    accepted says nothing of which particle it takes, so that this changes no law.
    """
    size = len(pairs.log_weight)

    def go_on(carry: Any) -> Any:
        number, _, accepted, _ = carry
        return (number < size) & (jnp.sum(~accepted) * float(size) > draws)

    def propose(carry: Any) -> Any:
        number, index, accepted, bounded = carry
        noise, uniform = jax.random.split(jax.random.fold_in(key, number))
        new = ancestors(pairs.log_weight, "multinomial", draw_noise(noise, "multinomial", draws), draws)
        log_density = jax.vmap(pairs.log_density)(take(pairs.before, new), pairs.variables)
        now = jax.random.exponential(uniform, (draws,)) > bound - log_density
        # What rounding adds to a density is no mistake of whoever gave the bound.
        within = log_density <= bound + ROUNDING * (1 + jnp.abs(bound))
        index = jnp.where(accepted, index, new)
        return number + 1, index, accepted | now, bounded & (accepted | within)

    def finish(carry: Any) -> Any:
        number, found, accepted = carry
        (rest,) = jnp.nonzero(~accepted, size=-(-draws // size), fill_value=draws)
        mine = take(pairs.variables, jnp.minimum(rest, draws - 1))
        noise = _uniforms(jax.random.fold_in(key, number), len(rest), pairs.log_weight)
        one = jax.vmap(lambda mine, uniforms: choose(pairs.log_weights(mine), uniforms))(mine, noise)
        index, possible = (x.at[rest].set(new, mode="drop") for x, new in zip(found, one, strict=False))
        return number + 1, Found(index, possible, found.bounded), accepted.at[rest].set(True, mode="drop")

    everyone = jnp.ones(draws, bool)
    start = 0, jnp.zeros(draws, int), ~everyone, everyone
    number, index, accepted, bounded = jax.lax.while_loop(go_on, propose, start)
    rest = number, Found(index, everyone, bounded), accepted
    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), finish, rest)[1]


def _uniforms(key: Key, draws: int, log_weight: Any) -> Any:
    return jax.random.uniform(key, (draws, 2), log_weight.dtype)


def _returned(transitions: Transitions, kept: Kept) -> Any:
    """Return what the programs before each step returned, for all particles that there were then."""

    def forward(before: Any, now: Any) -> Any:
        x, values = now
        return jax.vmap(transitions.value, (None, 0, 0))(x, before, values), before

    first = jax.vmap(transitions.first)(kept.first)
    return jax.lax.scan(forward, first, (transitions.xs, kept.values))[1]
