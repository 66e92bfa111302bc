"""What each pass of the compiler gains: the same program with all passes, and with all but one.

A pass that gains less than a tenth of the time, the memory or the compile time on every row has no place.
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import steelyard as sy
from benchmarks import chain, ring
from benchmarks.measure import Row, compare, gradient_step
from steelyard.compiler.passes import EVERY
from steelyard.experiments.annealing.model import Sampler
from steelyard.experiments.tracking.model import sampler
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.videos import simulate

LENGTH, PARTICLES = 60, 10_000
OBJECTS, FRAMES, VIDEOS = 3, 5, 4


def sweep(optimize: Any) -> Callable[[Any], Any]:
    """A Gibbs sweep over a chain."""
    return chain.sweep(LENGTH, optimize=optimize)


def annealing(optimize: Any) -> Callable[[Any], Any]:
    """A training step of annealed variational inference, in a loop over the densities."""
    model = Sampler.start(jax.random.key(0), ring.DENSITIES)
    parameters, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(model: Sampler, key: Any) -> Any:
        return sy.evaluate(ring.program(model), key, particles=ring.PARTICLES, optimize=optimize).loss

    step, state = gradient_step(loss, static, ring.OPTIMIZER), ring.OPTIMIZER.init(parameters)
    return lambda key: step(parameters, state, key)


def blocks(optimize: Any) -> Callable[[Any], Any]:
    """Sweeps over two blocks, of which a network updates one, in a loop."""
    k1, k2 = jax.random.split(jax.random.key(4))
    hidden, out = 0.1 * jax.random.normal(k1, (4, 512)), 0.1 * jax.random.normal(k2, (512, 4))

    def target(s: sy.State) -> Any:
        a = s.sample("a", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        return a, s.sample("b", dist.Normal(a, 1.0).to_event(1))

    def update(s: sy.State, value: Any) -> Any:
        a, _ = value
        return a, s.sample("b", dist.Normal(jnp.tanh(a @ hidden) @ out, 1.0).to_event(1))

    q = sy.algorithms.apg(target, target, [update], sweeps=10, remat=False)
    return lambda key: sy.evaluate(q, key, particles=1_000, optimize=optimize).log_z


def tracking(optimize: Any) -> Callable[[Any], Any]:
    """The gradient of three sweeps of amortized population Gibbs over videos."""
    frames = simulate(jax.random.key(1), VIDEOS, OBJECTS, FRAMES).frames
    parameters, static = eqx.partition(Networks(jax.random.key(0)), eqx.is_inexact_array)

    def loss(parameters: Any, key: Any) -> Any:
        def one(frames: Any, key: Any) -> Any:
            q = sampler(eqx.combine(parameters, static), frames, OBJECTS, 3)
            return sy.evaluate(q, key, particles=20, optimize=optimize).loss

        return jax.vmap(one)(frames, jax.random.split(key, VIDEOS)).mean()

    return lambda key: jax.grad(loss)(parameters, key)


def layers(optimize: Any) -> Callable[[Any], Any]:
    """The gradient of a loop of kernels with a hidden layer, at many particles."""
    k1, k2 = jax.random.split(jax.random.key(3))
    weights = 0.1 * jax.random.normal(k1, (8, 4, 256)), 0.1 * jax.random.normal(k2, (8, 256, 4))

    def loss(weights: Any, key: Any) -> Any:
        def model(s: sy.State) -> Any:
            return s.sample("z", dist.Normal(0.0, 1.0).expand([4]).to_event(1))

        def step(q: Any, layer: Any) -> Any:
            def kernel(s: sy.State, z: Any) -> Any:
                hidden, out = layer
                return s.sample("z", dist.Normal(jnp.tanh(z @ hidden) @ out, 0.7).to_event(1))

            return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, q))

        q = sy.scan(step, sy.propose(model, model), weights)
        return sy.evaluate(q, key, particles=100, objective=sy.objectives.elbo, optimize=optimize).loss

    return lambda key: jax.grad(loss)(weights, key)


def many(optimize: Any) -> Callable[[Any], Any]:
    """Likelihood weighting with many variables, each drawn by itself."""

    def model(s: sy.State) -> None:
        z = 0.0
        for t in range(LENGTH):
            z = s.sample(f"z{t}", dist.Normal(0.9 * z, 1.0))
            s.observe(f"x{t}", dist.Normal(z, 0.5), 0.1 * t)

    return lambda key: sy.evaluate(model, key, particles=PARTICLES, optimize=optimize).log_z


TASKS = {
    f"{LENGTH} variables": (many, ["draws"]),
    f"Gibbs sweep, {LENGTH} states": (sweep, ["reuse"]),
    "annealing, training step": (annealing, ["reuse", "common subexpressions", "rematerialization", "products"]),
    "kernels with a hidden layer": (layers, ["common subexpressions", "rematerialization", "products"]),
    "sweeps, a block by a network": (blocks, ["repeats"]),
    "tracking, gradient": (tracking, ["reuse", "common subexpressions", "rematerialization"]),
}


def outside_of_jit(optimize: Any) -> Callable[[], float]:
    """A filter of five steps that is called again and again outside of `jit`: return the seconds of one call."""

    def step(x: Any) -> Any:
        def program(s: sy.State, z: Any = 0.0) -> Any:
            z = s.sample("z", dist.Normal(0.9 * z, 1.0))
            s.observe("x", dist.Normal(z, 0.5), x)
            return z

        return program

    q = sy.algorithms.smc(step, over=jnp.arange(5.0), initial=step(0.0))

    def seconds() -> float:
        begin = time.perf_counter()
        jax.block_until_ready(sy.evaluate(q, jax.random.key(0), particles=100, optimize=optimize).log_z)
        return time.perf_counter() - begin

    return seconds


def run() -> list[Row]:
    """Compare each program with all passes, and without one of them."""
    calls = {
        name: outside_of_jit(passes) for name, passes in (("all passes", True), ("without loops", EVERY - {"loops"}))
    }
    rows = [compare("filter, called outside of jit", {}, (), "all passes", peers=calls)]
    for task, (program, passes) in TASKS.items():
        without = {f"without {name}": program(EVERY - {name}) for name in passes}
        rows.append(
            compare(task, {"all passes": program(True), **without}, (jax.random.key(0),), "all passes", compilations=1)
        )
    return rows
