"""NumPyro's checks: left out of densities, and in force for everybody else meanwhile."""

import threading
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, universal

NESTED: list[Any] = [
    dist.Normal(jnp.zeros(2), 1.0, validate_args=True).to_event(1),
    dist.Beta(2.0, 3.0, validate_args=True),
    dist.MixtureGeneral(
        dist.Categorical(jnp.array([0.3, 0.7])),
        [dist.Gamma(2.0, 1.0, validate_args=True), dist.LogNormal(validate_args=True)],
        validate_args=True,
    ),
    dist.HalfNormal(jnp.ones(2), validate_args=True).mask(np.array([True, False])),
]


def test_threads_that_trace_leave_the_checks_of_others_alone() -> None:
    class Slow(dist.HalfNormal):
        def log_prob(self, value: Any) -> Any:
            traced.set()
            checked.wait(timeout=30)
            return super().log_prob(value)

    traced, checked, failures = threading.Event(), threading.Event(), []

    def trace() -> None:
        try:
            out = sy.evaluate(lambda s: s.observe("x", Slow(1.0), jnp.array([0.3])), KEY, particles=2)
            failures.extend([] if np.isfinite(out.log_z) else [out])
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=trace) for _ in range(4)]
    before = dist.Distribution._validate_args
    for thread in threads:
        thread.start()
    try:
        assert traced.wait(timeout=30)
        assert dist.Distribution._validate_args is before is True
        with pytest.raises(ValueError, match="invalid scale"):
            dist.Normal(0.0, -1.0)
        with pytest.warns(UserWarning, match="Out-of-support"):
            dist.HalfNormal(1.0).log_prob(-1.0)
    finally:
        checked.set()
        for thread in threads:
            thread.join()
    assert not failures


@pytest.mark.parametrize("distribution", NESTED)
def test_densities_are_without_checks(distribution: Any) -> None:
    """No warning of values outside, and no equation for one inside; the distribution stays as it was."""
    value = distribution.sample(jax.random.key(0))
    attributes = dict(vars(distribution))
    sy.log_density(lambda s: s.sample("z", distribution), {"z": value})
    assert {a: v for a, v in vars(distribution).items() if a in attributes} == attributes
    assert distribution._validate_args or isinstance(distribution, dist.Independent | dist.MaskedDistribution)
    with warnings.catch_warnings(action="error"):
        given = {"z": jnp.stack([value, -1 - jnp.abs(value)])}
        out = universal(lambda s: s.sample("z", distribution), particles=2, given=given)
    is_real = isinstance(distribution, dist.Independent)
    assert np.isneginf(out.log_weight).tolist() == [False, not is_real]


@pytest.mark.parametrize(
    "distribution", [NESTED[0], dist.Laplace(0.0, 2.0), dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2))]
)
def test_a_density_without_bounds_has_no_equation_for_them(distribution: Any) -> None:
    model = lambda s: s.sample("z", distribution)  # noqa: E731
    jaxpr = jax.make_jaxpr(lambda z: sy.log_density(model, {"z": z}))(jnp.zeros(distribution.shape()))
    assert not {str(e.primitive) for e in jaxpr.eqns} & {"select_n", "eq", "ne", "and", "is_finite"}
