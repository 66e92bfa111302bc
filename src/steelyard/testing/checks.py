"""Proper weighting, checked exactly or by a test of the evidence."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from steelyard.arguments import check_count, check_key
from steelyard.engines.evaluate import evaluate
from steelyard.errors import ArgumentError, SteelyardError
from steelyard.language.addresses import Previous
from steelyard.language.describe import describe
from steelyard.language.programs import Program, Programmable, Resample, Scan, program
from steelyard.language.rewrite import target
from steelyard.maps import Map
from steelyard.semantics.evaluation import Evaluation
from steelyard.testing import vectorized
from steelyard.testing.enumeration import enumerate as enumerate_outcomes
from steelyard.testing.precision import doubled, in_double_precision
from steelyard.types import Count, EngineName

# Up to so many ways in which a program can run, both engines are checked without being asked.
FEW = 2000


def assert_properly_weighted(
    q: Programmable, *args: Any, particles: Count, tolerance: float = 1e-9, engine: EngineName | None = None
) -> None:
    """Check the paper's Definition 1 exactly: for every particle l and every trace t,

        E[w_l 1(tau_l = t)] = gamma_q(t)

    Args:
        q: a program whose variables are finite and discrete.
        *args: what q is called with.
        particles: how many particles; 1 to 3 are enough to find mistakes.
        tolerance: how far the two sides may be apart, relative to the sum of gamma_q over all traces.
        engine: which engine runs q, as in `enumerate`. None: first `universal`, then `vectorized`, which is what
            `evaluate` uses by default, unless it refuses the program or there are more than 2000 ways to run it.

    A `scan(..., keep=[...])` is checked for the density of the newest variables, in which the others are summed out.

    Raises:
        AssertionError: a particle is not properly weighted, with the traces at which it is not.

    Example:
        >>> import jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
        >>> def model(s):
        ...     z = s.sample("z", dist.Bernoulli(0.3))
        ...     s.observe("x", dist.Bernoulli(0.2 + 0.5 * z), 1)
        >>> def guide(s): s.sample("z", dist.Bernoulli(0.6))
        >>> sy.testing.assert_properly_weighted(sy.resample(sy.propose(model, guide)), particles=2)
    """
    particles = check_count(particles, "assert_properly_weighted")
    with jax.enable_x64(True):
        q, args = in_double_precision(program(q)), doubled(args)
    log_density = _log_densities(q, args)
    if engine is not None:
        _compare(q, enumerate_outcomes(q, *args, particles=particles, engine=engine), log_density, particles, tolerance)
        return
    _compare(q, enumerate_outcomes(q, *args, particles=particles), log_density, particles, tolerance)
    with jax.enable_x64(True):
        try:
            found = vectorized.outcomes(q, args, particles, most=FEW)
        except SteelyardError:
            return
    if found is not None:
        _compare(q, found, log_density, particles, tolerance)


def _compare(
    q: Program, outcomes: Iterable[tuple[float, Evaluation]], log_density: dict[Any, float], size: int, tolerance: float
) -> None:
    # In units of the total mass, which may be far from any number that a float can hold.
    log_mass = float(np.logaddexp.reduce([*log_density.values()], initial=-np.inf))
    unit = log_mass if math.isfinite(log_mass) else 0.0
    density = {trace: _exp(value - unit) for trace, value in log_density.items()}
    weighted: list[dict[Any, float]] = [defaultdict(float) for _ in range(size)]
    for probability, out in outcomes:
        for l in range(size):
            weighted[l][_key(out.trace.of_particle(l))] += probability * _exp(float(out.log_weight[l]) - unit)
    scale = f" in units of exp({unit:.6g})" if abs(unit) > 20 else ""
    wrong = [
        f"  particle {l}, trace {dict(t)}: E[w 1] = {_shown(found, t, unit)}, density {_shown(density, t, unit)}{scale}"
        for l, found in zip(range(size), weighted, strict=True)
        for t in sorted({*found, *density}, key=repr)
        if not abs(found.get(t, 0.0) - density.get(t, 0.0)) <= tolerance
    ]
    if wrong:
        raise AssertionError("\n".join([f"{describe(q)} is not properly weighted:", *wrong]))


def _exp(x: float) -> float:
    """Return e^x, infinite where a float cannot hold it."""
    return math.exp(x) if x < 700 else math.nan if math.isnan(x) else math.inf


def _shown(values: Mapping[Any, float], trace: Any, unit: float) -> str:
    """Return a value as it is, if it is of ordinary size, else in units of the total mass."""
    return f"{values.get(trace, 0.0) * (math.exp(unit) if abs(unit) <= 20 else 1.0):.12g}"


class Evidence(NamedTuple):
    """An estimate of Z relative to its exact value, which should be 1, and its standard error."""

    ratio: float
    standard_error: float

    @property
    def z_score(self) -> float:
        """How many standard errors the estimate is from the exact value."""
        return (self.ratio - 1.0) / self.standard_error


def check_evidence(
    q: Programmable,
    log_z: float,
    *args: Any,
    key: PRNGKeyArray,
    particles: Count,
    runs: Count = 100,
    max_z_score: float = 4.0,
    max_standard_error: float = 0.0125,
) -> Evidence:
    """Test that the average weight of independent runs estimates Z without bias.

    Args:
        q: a program.
        log_z: the exact log of its normalising constant.
        *args: what q is called with.
        key: a key of `jax.random.key`.
        particles: how many particles a run has.
        runs: how many runs.
        max_z_score: how many standard errors the average may be off.
        max_standard_error: how precise the average must be, relative to Z, for the test to mean anything; the default
            notices a factor of 1.05.

    Returns:
        The estimate relative to the exact value, and its standard error.

    Raises:
        AssertionError: the estimate is off, or too noisy to tell.
        ArgumentError: the exact value is not finite.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 1.0), 0.5)
        >>> exact = dist.Normal(0.0, 2**0.5).log_prob(0.5)
        >>> evidence = sy.testing.check_evidence(model, exact, key=jax.random.key(0), particles=1000)
        >>> abs(evidence.z_score) < 4
        True
    """
    particles, runs = check_count(particles, "check_evidence"), check_count(runs, "check_evidence", "runs", least=2)
    exact = float(log_z)
    if not math.isfinite(exact):
        raise ArgumentError(f"check_evidence: log_z must be a finite number to compare with, got {exact}.")
    keys = jax.random.split(check_key(key, "check_evidence"), runs)
    one_run = jax.jit(lambda k: evaluate(q, k, *args, particles=particles).log_z)
    log_zs = np.asarray(jax.lax.map(one_run, keys))
    # Weights of hardly any variance are off by what their precision leaves of their logarithm.
    rounding = 4 * float(np.finfo(log_zs.dtype).eps) * (1 + abs(exact))
    if rounding > max_standard_error:
        raise AssertionError(
            f"{describe(program(q))}: log Z = {exact:.6g} is known to {rounding:.2g} at best in {log_zs.dtype}. "
            f"Run the check under jax.enable_x64(True)."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = np.exp(log_zs.astype(float) - exact)
        noise = float(ratios.std(ddof=1) / math.sqrt(runs))
    # Not max(), which would drop NaN.
    evidence = Evidence(float(ratios.mean()), rounding if noise < rounding else noise)
    if not evidence.standard_error <= max_standard_error:
        raise AssertionError(
            f"{describe(program(q))}: Z / exact = {evidence.ratio:.4f} has a standard error of "
            f"{evidence.standard_error:.4f}, more than {max_standard_error}. Use more particles or runs."
        )
    if not abs(evidence.z_score) <= max_z_score:
        raise AssertionError(
            f"{describe(program(q))}: Z / exact = {evidence.ratio:.4f} +- {evidence.standard_error:.4f}, "
            f"{evidence.z_score:.1f} standard errors from 1."
        )
    return evidence


def _log_densities(q: Program, args: Any) -> dict[Any, float]:
    """Return every trace that the target of q can generate, and its log density."""
    whole = _remembering(q)
    log_density: dict[Any, float] = defaultdict(lambda: -math.inf)
    for _, out in enumerate_outcomes(target(whole), *args, particles=1):
        trace = out.trace.of_particle(0)
        if whole is not q:
            trace = Map({a: v for a, v in trace.items() if not isinstance(a, Previous)})
        value = sum(float(rho[0]) for rho in out.log_density.values())
        log_density[_key(trace)] = float(np.logaddexp(log_density[_key(trace)], value))
    return log_density


def _remembering(q: Program) -> Program:
    """Return q, which may be a scan that keeps only the newest version of each variable, as one that keeps all."""
    match q:
        case Resample():
            inner = _remembering(q.q)
            return q if inner is q.q else replace(q, q=inner)
        case Scan() if q.keep is not None:
            return replace(q, keep=None)
        case _:
            return q


def _key(trace: Map[Any]) -> Any:
    return tuple((a, _frozen(np.asarray(v).tolist())) for a, v in sorted(trace.items()))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
