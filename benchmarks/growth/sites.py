"""Programs with many addresses, next to the same with all numbers drawn in one call."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.growth.measure import Growth, Job, growth

PARTICLES, MORE, STEPS = 1000, 10_000, 20
KEY = jax.random.key(0)


def data() -> Any:
    return jnp.linspace(-1.0, 1.0, STEPS)


def filtered(addresses: int) -> Job:
    names = [f"z{i}" for i in range(addresses)]

    def start(s: sy.State) -> Any:
        s.factor("y", 0.0)
        return [s.sample(a, dist.Normal(0.0, 1.0)) for a in names]

    def step(q: Any, y: Any) -> Any:
        def transition(s: sy.State, z: Any) -> Any:
            z = [s.sample(a, dist.Normal(0.9 * z[i] + 0.1 * z[i - 1], 0.5)) for i, a in enumerate(names)]
            s.observe("y", dist.Normal(sum(z), 1.0), y)
            return z

        return sy.move(transition, sy.resample(q))

    return lambda key: sy.evaluate(sy.scan(step, start, data(), keep=names), key, particles=PARTICLES).log_z, (KEY,)


def filtered_by_hand(addresses: int) -> Job:
    """The same filter, whose variables are the rows of one array."""

    def f(key: Any) -> Any:
        first, rest = jax.random.split(key)

        def step(carry: Any, now: Any) -> Any:
            (z, log_w), (key, y) = carry, now
            k1, k2 = jax.random.split(key)
            positions = (jnp.arange(PARTICLES) + jax.random.uniform(k1)) / PARTICLES
            z = z[:, jnp.searchsorted(jnp.cumsum(jax.nn.softmax(log_w)), positions)]
            noise = jax.random.normal(k2, z.shape)
            new = [0.9 * z[i] + 0.1 * z[i - 1] + 0.5 * noise[i] for i in range(addresses)]
            log_z = jax.nn.logsumexp(log_w) - jnp.log(PARTICLES)
            return (jnp.stack(new), log_z + dist.Normal(sum(new), 1.0).log_prob(y)), None

        start = jax.random.normal(first, (addresses, PARTICLES)), jnp.zeros(PARTICLES)
        (_, log_w), _ = jax.lax.scan(step, start, (jax.random.split(rest, STEPS), data()))
        return jax.nn.logsumexp(log_w) - jnp.log(PARTICLES)

    return f, (KEY,)


def chain(sites: int, kind: Any) -> Job:
    def program(s: sy.State) -> None:
        z: Any = 0.5
        for t in range(sites):
            z = s.sample(f"z{t}", kind(1.0 + 0.1 * z))
            s.observe(f"x{t}", dist.Normal(z, 1.0), 0.1)

    return lambda key: sy.evaluate(program, key, particles=PARTICLES).log_z, (KEY,)


def with_trace(sites: int) -> Job:
    def program(s: sy.State) -> None:
        z: Any = 0.0
        for t in range(sites):
            z = s.sample(f"z{t}", dist.Normal(0.9 * z, 1.0))
            s.observe(f"x{t}", dist.Normal(z, 0.5), 0.1 * t)

    def f(key: Any) -> Any:
        out = sy.evaluate(program, key, particles=MORE)
        return out.log_z, dict(out.trace)

    return f, (KEY,)


def with_trace_by_hand(sites: int) -> Job:
    """The same chain, with all noise drawn in one call."""

    def f(key: Any) -> Any:
        noise = jax.random.normal(key, (sites, MORE))
        z, log_w, trace = jnp.zeros(MORE), jnp.zeros(MORE), {}
        for t in range(sites):
            z = trace[f"z{t}"] = 0.9 * z + noise[t]
            log_w = log_w + dist.Normal(z, 0.5).log_prob(0.1 * t)
        return jax.nn.logsumexp(log_w) - jnp.log(MORE), trace

    return f, (KEY,)


def returned_traces() -> Growth:
    """A chain of variables that are returned, by their number: from 13 on, their bits are drawn at once."""
    return growth("a chain, returned, by sites", (12, 15, 30), with_trace, "one draw", with_trace_by_hand)


def addresses_in_a_scan() -> Growth:
    """A filter, by the variables of a step."""
    return growth("a filter, by addresses of a step", (10, 20, 40), filtered, "one array", filtered_by_hand)


def half_normals() -> Growth:
    """A chain of half-normal variables, next to one of normal ones."""
    return growth(
        "a chain of half-normals, by sites",
        (25, 50, 100),
        lambda sites: chain(sites, dist.HalfNormal),
        "normals",
        lambda sites: chain(sites, lambda scale: dist.Normal(0.0, scale)),
    )


ROWS = (addresses_in_a_scan, half_normals, returned_traces)
