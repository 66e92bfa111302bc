"""Estimators with a term left out fail the checks that the right ones pass: the checks can tell."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import steelyard as sy
from steelyard import objectives
from tests.objectives import continuous, discrete, nested
from tests.objectives.estimates import (
    Objective,
    Runs,
    assert_close,
    check_average,
    exact_gradient,
    expectation,
    run_all,
)
from tests.objectives.test_bounds_discrete import BOUNDS, evidence_bound, importance_weighted_bound
from tests.objectives.test_self_normalised import expected

stop = jax.lax.stop_gradient


def keep(x: Any) -> Any:
    return x


def total(e: sy.Evaluation, without: Any = ()) -> Any:
    """The log of the product of all densities, but for some addresses."""
    return jnp.sum(jnp.stack([rho for address, rho in e.log_density.items() if address not in without]), axis=0)


def bound(log_mean: bool, *, score: bool = True, baseline: str = "others") -> Objective:
    """elbo or iwae with its score-function term."""

    def objective(level: sy.Level) -> Any:
        log_w, size = level.log_weight, level.log_weight.shape[-1]
        value = jax.nn.logsumexp(log_w) - jnp.log(size) if log_mean else jnp.mean(log_w)
        signal = jnp.broadcast_to(value, log_w.shape) if log_mean else log_w / size
        if baseline == "all":
            signal = signal - jnp.mean(signal)
        elif baseline == "others":
            signal = signal - (jnp.sum(log_w) - log_w) / (size - 1) / (1 if log_mean else size)
        return -value - (jnp.sum(stop(signal) * level.score) if score else 0.0)

    return objective


def reverse_kl(*, log_z: bool = True, score: bool = True, hold: Callable[[Any], Any] = stop) -> Objective:
    def objective(level: sy.Level) -> Any:
        w, wv = hold(jax.nn.softmax(level.log_w)), hold(jax.nn.softmax(level.log_weight))
        assert level.kernel is not None
        before = total(level.proposal, level.kernel.log_density)
        loss = jnp.sum(w * -level.log_v)
        if score:
            loss += jnp.sum(stop(w * (-level.log_v - jnp.sum(w * -level.log_v))) * before)
        if log_z:
            loss += jnp.sum(wv * total(level.fixed.marginal)) - jnp.sum(w * before)
        return loss

    return objective


def forward_kl(*, log_z: bool = True, score: bool = True, hold: Callable[[Any], Any] = stop) -> Objective:
    def objective(level: sy.Level) -> Any:
        w, wv = hold(jax.nn.softmax(level.log_w)), hold(jax.nn.softmax(level.log_weight))
        loss = -jnp.sum(wv * total(level.fixed.proposal))
        if score:
            average = jnp.sum(wv * level.log_v)
            loss += jnp.sum(stop(wv * (level.log_v - average)) * total(level.fixed.target))
        if log_z:
            assert level.kernel is not None
            loss += jnp.sum(w * total(level.proposal, level.kernel.log_density))
        return loss

    return objective


def wake_phi(*, log_z: bool = True, hold: Callable[[Any], Any] = stop) -> Objective:
    def objective(level: sy.Level) -> Any:
        w, wv = hold(jax.nn.softmax(level.log_w)), hold(jax.nn.softmax(level.log_weight))
        return -jnp.sum((wv - w if log_z else wv) * total(level.fixed.proposal))

    return objective


def wake_theta(*, hold: Callable[[Any], Any] = stop) -> Objective:
    def objective(level: sy.Level) -> Any:
        return -jnp.sum(hold(jax.nn.softmax(level.log_weight)) * total(level.fixed.marginal))

    return objective


NESTED: dict[str, tuple[str, Objective]] = {
    "reverse_kl": ("reverse_kl", reverse_kl()),
    "reverse_kl without log Z": ("reverse_kl", reverse_kl(log_z=False)),
    "reverse_kl without score": ("reverse_kl", reverse_kl(score=False)),
    "reverse_kl with attached weights": ("reverse_kl", reverse_kl(hold=keep)),
    "forward_kl": ("forward_kl", forward_kl()),
    "forward_kl without log Z": ("forward_kl", forward_kl(log_z=False)),
    "forward_kl without score": ("forward_kl", forward_kl(score=False)),
    "forward_kl with attached weights": ("forward_kl", forward_kl(hold=keep)),
    "wake_phi": ("wake_phi", wake_phi()),
    "wake_phi without log Z": ("wake_phi", wake_phi(log_z=False)),
    "wake_phi with attached weights": ("wake_phi", wake_phi(hold=keep)),
    "wake_theta": ("wake_theta", wake_theta()),
    "wake_theta with attached weights": ("wake_theta", wake_theta(hold=keep)),
}
DISCRETE: dict[str, tuple[Callable[[Any], Any], Objective]] = {
    "elbo": (evidence_bound, bound(False)),
    "elbo without baseline": (evidence_bound, bound(False, baseline="none")),
    "elbo without score": (evidence_bound, bound(False, score=False)),
    "elbo with its own weight in the baseline": (evidence_bound, bound(False, baseline="all")),
    "iwae": (importance_weighted_bound, bound(True)),
    "iwae without baseline": (importance_weighted_bound, bound(True, baseline="none")),
    "iwae without score": (importance_weighted_bound, bound(True, score=False)),
}
RIGHT = {"reverse_kl", "forward_kl", "wake_phi", "wake_theta", "elbo", "iwae"}


def is_right(name: str) -> bool:
    return name in RIGHT or name.endswith("without baseline")


@cache
def nested_runs() -> dict[str, Runs]:
    build, params, _ = nested.CONTINUOUS
    return run_all(build, params, {name: f for name, (_, f) in NESTED.items()}, particles=2**14, runs=64)


@cache
def discrete_runs() -> dict[str, Runs]:
    every = {name: f for name, (_, f) in DISCRETE.items()}
    return run_all(discrete.ONE_LEVEL.build, discrete.PARAMS, every, particles=2, runs=2**12)


@pytest.mark.parametrize("name", list(NESTED))
def test_variants_of_a_nested_level(name: str) -> None:
    exact = expected("continuous", NESTED[name][0])
    if is_right(name):
        check_average(nested_runs()[name], exact)
        return
    with pytest.raises(AssertionError, match="is biased"):
        check_average(nested_runs()[name], exact)


@pytest.mark.parametrize("name", list(DISCRETE))
def test_variants_of_bounds(name: str) -> None:
    found = expectation(discrete.ONE_LEVEL, discrete.PARAMS, discrete_runs()[name])
    exact = exact_gradient(lambda p: discrete.expected_loss(p, 2, DISCRETE[name][0]), discrete.PARAMS)
    if is_right(name):
        assert_close(found, exact)
        return
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close(found, exact)


def test_dreg_needs_the_squares_of_its_weights() -> None:
    def once(level: sy.Level) -> Any:
        nu = stop(jax.nn.softmax(level.log_weight))
        path = level.log_v - (level.fixed.numerator - level.fixed.denominator)
        return -jnp.sum(nu * path) - jnp.sum(nu * level.fixed.numerator)

    both = {"dreg": objectives.dreg, "once": once}
    found = run_all(continuous.proposal(), continuous.PARAMS, both, particles=2, runs=2**16)
    exact = exact_gradient(lambda p: continuous.expected_loss(p, 2, BOUNDS["iwae"][1]), continuous.PARAMS)
    check_average(found["dreg"], exact)
    with pytest.raises(AssertionError, match="is biased"):
        check_average(found["once"], exact)
