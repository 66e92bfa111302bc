"""Running programs: `evaluate`, and the density at a trace."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from steelyard.arguments import check_count, check_key, check_objective
from steelyard.compiler.loops import compiled_once, with_compiled_loops
from steelyard.compiler.passes import Pass, chosen
from steelyard.compiler.segments import is_long, traced_once
from steelyard.devices.layout import checked
from steelyard.engines.abstract import explained
from steelyard.engines.degenerate import Looker, check_weights
from steelyard.engines.gathering import as_objects, stacked
from steelyard.engines.observed import observed_values
from steelyard.engines.pointwise import ObservedState, PointwiseState
from steelyard.engines.progress import awaited, watching
from steelyard.engines.single import Single
from steelyard.engines.spread import on_devices
from steelyard.engines.transitions import filter_of, with_transitions
from steelyard.engines.universal import Universal
from steelyard.engines.vectorized import Vectorized
from steelyard.errors import AddressError, ArgumentError, GrammarError
from steelyard.language.addresses import versioned
from steelyard.language.describe import describe
from steelyard.language.programs import Program, Programmable, program
from steelyard.language.rewrite import target
from steelyard.maps import Map, dom, select
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.levels import Objective
from steelyard.semantics.values import Values, dense
from steelyard.types import Count, EngineName, Scalar, is_staged, is_traced


def evaluate(
    q: Programmable,
    key: PRNGKeyArray,
    *args: Any,
    particles: Count,
    given: Mapping[str, Any] | None = None,
    objective: Objective | None = None,
    engine: EngineName = "vectorized",
    optimize: bool | Collection[Pass] = True,
    chunk: Count | None = None,
    mesh: Mesh | None = None,
    progress: bool = False,
    pointwise: bool = False,
    smoothing: bool = False,
) -> Evaluation:
    """Evaluate a program: c, tau, rho, w <- q(args)[given].

    Under `jit`, `vmap` and `grad` like any function of JAX. A minibatch of data is a `vmap` over `evaluate`.

    Args:
        q: a program.
        key: a key made by `jax.random.key`; the same key gives the same particles, with either engine.
        *args: what q is called with; shared by all particles and never copied for them.
        particles: how many particles.
        given: a trace with the particle axis first, like `Evaluation.trace`, whose values are reused where q samples
            the same addresses. Inference programs are then evaluated as their target.
        objective: a function of a `Level`, evaluated in every propose that does not carry its own; the sum is the loss.
            It changes neither samples nor weights.
        engine: `vectorized` runs all particles at once in JAX; `universal` runs them one by one in Python, for
            programs that branch, loop or recurse on what they sampled.
        optimize: whether the passes of the compiler run; or which of them, by name. Results are the same up to
            rounding: `optimize=False` is the first thing to try when something looks wrong.
        chunk: run programs on at most so many particles at a time, which bounds the memory for what they compute on
            the way; particles and weights themselves are kept for all. Gradients then run programs once more. With a
            mesh, so many on each device.
        mesh: devices, to the axis "particles" of which the particles are shared out. Every array of the result that
            has a particle axis lies on them; all others are on each. The same key gives the same particles on any
            number of devices, as far as XLA rounds the program alike. The number of particles must be a multiple of
            that of the devices.
        progress: whether to show how many particles are done, chunk by chunk; Ctrl-C then ends it within a chunk. Not
            inside of `jit`, `vmap` or `grad`.
        pointwise: whether to keep log densities by observation, `Evaluation.pointwise`. The program whose density q
            denotes is then evaluated once more, at the particles that q gave.
        smoothing: of a filter, whether to keep its transitions, for `Evaluation.smoothed`. They are read off the
            program, and cost nothing until they are used.

    Returns:
        Particles that are properly weighted for the density that q denotes.

    Raises:
        AddressError: addresses collide, are unknown, or hold values that do not fit.
        ObservedKernelError: the kernel of an extend observes something.
        WeightError: a weight is NaN or all of them are zero; under `jit` log Z is then NaN or -inf.
        ArgumentError: an argument is of the wrong kind.
        GrammarError: densities by observation are asked for, and the density that q denotes is not known; or
            transitions, and q is no filter that has them.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        ...     return z
        >>> out = sy.evaluate(model, jax.random.key(0), 1.3, particles=1000)
        >>> bool(abs(out.expect(lambda t: t["z"]) - 0.8 * 1.3) < 0.1)
        True
    """
    q = program(q)
    key, particles = check_key(key, "evaluate"), check_count(particles, "evaluate")
    chunk = None if chunk is None else check_count(chunk, "evaluate", "chunk")
    check_objective(objective, "evaluate")
    passes = chosen(optimize)
    devices = None if mesh is None else checked(mesh, particles, "evaluate")
    p = _known_target(q) if pointwise else None
    scan = filter_of(q, engine) if smoothing else None
    if engine not in ("vectorized", "universal"):
        raise ArgumentError(f'evaluate: engine is "vectorized" or "universal", got {engine!r}.')
    trace = None if given is None else _per_particle(given, particles)
    if progress:
        _check_progress(chunk, engine, any(map(is_traced, jax.tree.leaves((key, args, given)))))
    shared = Values.shared(args)
    if engine == "universal":
        if devices is not None:
            raise ArgumentError('evaluate: the universal engine runs in Python; a mesh needs engine="vectorized".')
        if any(map(is_traced, jax.tree.leaves((key, args, given)))):
            raise ArgumentError(
                "evaluate: the universal engine runs on concrete values, and cannot run inside of jit, vmap or grad. "
                'Call it outside of them, or use engine="vectorized".'
            )

        def run(key: PRNGKeyArray, seen: Looker | None = None) -> Evaluation:
            given = None if trace is None else as_objects(trace, particles)
            out = Universal(key, particles, objective, seen).run(q, shared, given).finished()
            if p is not None:
                states = (PointwiseState, ObservedState)
                terms, values = (Universal(key, particles, state=s).run(p, shared, out.trace).pointwise for s in states)
                out = _with_pointwise(out, stacked(terms), values)
            return replace(out, trace=Map({a: dense(v) for a, v in out.trace.items()}, out.trace.masks))

        out, again = run(key), run
    else:
        with watching(particles) if progress else nullcontext() as watch:
            options = {"optimize": passes, "chunk": chunk, "watch": watch}

            def run(key: PRNGKeyArray, seen: Looker | None = None) -> Evaluation:
                out = Vectorized(key, particles, objective, seen=seen, **options).run(q, shared, trace).finished()
                if p is not None:
                    states = (PointwiseState, ObservedState)
                    engines = (Vectorized(key, particles, state=state, **options) for state in states)
                    out = _with_pointwise(out, *(engine.run(p, shared, out.trace).pointwise for engine in engines))
                return out if scan is None else with_transitions(out, scan, shared)

            # What is to blame for a weight is looked for in Python, on one device: particles are the same there.
            again = run
            if devices is not None:
                run = on_devices(run, devices)
            if is_traced(key):
                run = _compiled(run, q, passes)
                # Operation by operation, under `vmap` alone, arrays cannot be laid out.
                with explained(q):
                    return (run if devices is None or is_staged() else jax.jit(run))(key)
            # A wrong program is found by tracing it, before anything is sampled.
            with explained(q):
                equations, shapes = jax.make_jaxpr(run, return_shape=True)(key)
            as_a_whole = devices is not None or watch is not None
            known = _compiled_outside(equations, passes, as_a_whole) if not is_staged() else None
            if known is None:
                out = _compiled(run, q, passes)(key)
            else:
                results = known(key)
                out = jax.tree.unflatten(
                    jax.tree.structure(shapes), results if watch is None else awaited(results, watch)
                )
    check_weights(out, q, lambda seen: again(key, seen))
    return out


def log_density(q: Programmable, trace: Mapping[str, Any], *args: Any) -> Scalar:
    """Return the unnormalised log density that q denotes, at the trace of one particle.

        log gamma_q(tau) = sum of log rho over dom(rho), where rho <- target(q)(args)[tau]

    Args:
        q: a program.
        trace: a value for every unobserved variable of `target(q)`, and for no other.
        *args: what q is called with.

    Returns:
        A scalar. -inf for a trace that q cannot generate.

    Raises:
        AddressError: the addresses of the trace are not those of the program.

    Example:
        >>> import numpyro.distributions as dist, steelyard as sy
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        >>> exact = dist.Normal(0.0, 1.0).log_prob(0.2) + dist.Normal(0.2, 0.5).log_prob(1.3)
        >>> bool(sy.log_density(model, {"z": 0.2}, 1.3) == exact)
        True
    """
    q = target(q)
    tau0 = trace if isinstance(trace, Map) else Map({versioned(a): v for a, v in trace.items()})
    e = Single().run(q, Values.shared(args), tau0)
    total = sum(e.log_density.values(), start=jnp.zeros(()))
    missing, superfluous = dom(e.trace) - dom(tau0), dom(tau0) - dom(e.trace)
    for domain, problem in (
        (missing, "the trace has no value for"),
        (superfluous, "the program does not sample"),
    ):
        for address, mask in domain.items():
            if mask is True:
                raise AddressError(
                    f"log_density of {describe(q)}: {problem} {address!r}. The program samples "
                    f"{', '.join(map(repr, sorted(e.trace))) or 'nothing'}."
                )
            total = select(mask, -jnp.inf, total)
    return total


def _compiled(run: Callable[..., Any], q: Program, passes: frozenset[str]) -> Callable[..., Any]:
    """Return how a program runs: inside of `jit`, a long one in segments that are compiled one by one."""
    return traced_once(run) if "segments" in passes and is_staged() and is_long(q) else run


def _compiled_outside(equations: ClosedJaxpr, passes: frozenset[str], as_a_whole: bool) -> Callable[..., Any] | None:
    """Return how a program runs outside of `jit`; None, for operation by operation."""
    if as_a_whole:
        return compiled_once(equations)
    return with_compiled_loops(equations) if "loops" in passes else None


def _check_progress(chunk: int | None, engine: EngineName, traced: bool) -> None:
    if chunk is None or engine != "vectorized":
        raise ArgumentError(
            'evaluate: progress is shown chunk by chunk, by engine="vectorized". Say how many particles a chunk has, '
            "for example chunk=100_000."
        )
    if traced or is_staged():
        raise ArgumentError(
            "evaluate: progress can be shown outside of jit, vmap and grad only, where evaluate compiles the program."
        )


def _with_pointwise(out: Evaluation, pointwise: Map[Any], values: Map[Any]) -> Evaluation:
    return replace(out, record=replace(out.record, pointwise=pointwise, observed=observed_values(values)))


def _known_target(q: Program) -> Program:
    try:
        return target(q)
    except GrammarError as error:
        raise GrammarError(
            f"evaluate(..., pointwise=True) takes densities by observation from the density that the program denotes, "
            f"which is not known here. {error}"
        ) from error


def _per_particle(given: Mapping[str, Any], particles: int) -> Map[Any]:
    trace = given if isinstance(given, Map) else Map({versioned(a): v for a, v in given.items()})
    for address, value in trace.items():
        for leaf in jax.tree.leaves(value):
            if np.shape(leaf)[:1] != (particles,):
                raise ArgumentError(
                    f"evaluate: given[{address!r}] has shape {np.shape(leaf)}, without an axis of "
                    f"{particles} particles in front. Use jnp.broadcast_to for one value for all particles, "
                    f"or log_density for a single trace."
                )
    return trace
