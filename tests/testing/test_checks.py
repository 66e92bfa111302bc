"""The checks of proper weighting find what is wrong, and pass what is right."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY


def model(s: sy.State) -> None:
    z = s.sample("z", dist.Bernoulli(0.3))
    s.observe("x", dist.Bernoulli(0.2 + 0.5 * z), 1)


def guide(s: sy.State) -> None:
    s.sample("z", dist.Bernoulli(0.6))


def test_right_programs_pass() -> None:
    for q in (model, sy.propose(model, guide), sy.resample(sy.propose(model, guide), threshold=0.9)):
        sy.testing.assert_properly_weighted(q, particles=2)


def test_a_proposal_that_does_not_cover_the_target_is_found() -> None:
    def never(s: sy.State) -> None:
        s.sample("z", dist.Categorical(jnp.array([1.0])))

    with pytest.raises(AssertionError) as error:
        sy.testing.assert_properly_weighted(sy.propose(model, never), particles=2)
    lines = str(error.value).splitlines()
    assert lines[0] == "propose(model, never) is not properly weighted:"
    assert len(lines) == 3
    for l, line in enumerate(lines[1:]):
        assert line.startswith(f"  particle {l}, trace {{'z': 1}}: E[w 1] = 0, density 0.21")


def test_a_program_that_depends_on_more_than_its_trace_is_found() -> None:
    calls: list[int] = []

    def moody(s: sy.State) -> None:
        calls.append(1)
        z = s.sample("z", dist.Bernoulli(0.3))
        s.factor("f", float(z) * (len(calls) % 3))

    with pytest.raises(AssertionError, match="not properly weighted"):
        sy.testing.assert_properly_weighted(sy.resample(moody), particles=2)


def test_the_tolerance_is_what_it_says() -> None:
    def slightly(s: sy.State) -> None:
        s.sample("z", dist.Categorical(jnp.array([0.3, 0.7 - 1e-5, 1e-5])))

    def misses(s: sy.State) -> None:
        s.sample("z", dist.Categorical(jnp.array([0.3, 0.7, 0.0])))

    q = sy.propose(slightly, misses)
    sy.testing.assert_properly_weighted(q, particles=1, tolerance=1e-4)
    with pytest.raises(AssertionError, match="'z': 2"):
        sy.testing.assert_properly_weighted(q, particles=1)


SIZES = [-2000.0, -46.0, -23.0, 0.0, 23.0, 400.0, 3000.0]


def scaled(log_size: float) -> Any:
    def program(s: sy.State) -> None:
        model(s)
        s.factor("size", log_size)

    return program


@pytest.mark.parametrize("log_size", SIZES)
def test_densities_of_any_size_pass_where_they_are_right(log_size: float) -> None:
    for q in (scaled(log_size), sy.resample(sy.propose(scaled(log_size), guide))):
        sy.testing.assert_properly_weighted(q, particles=2)


@pytest.mark.parametrize("log_size", SIZES)
def test_densities_of_any_size_are_found_where_they_are_wrong(log_size: float) -> None:
    def never(s: sy.State) -> None:
        s.sample("z", dist.Categorical(jnp.array([1.0])))

    with pytest.raises(AssertionError, match=r"trace \{'z': 1\}: E\[w 1\] = 0, density"):
        sy.testing.assert_properly_weighted(sy.propose(scaled(log_size), never), particles=1)


def test_a_density_of_zero_everywhere() -> None:
    nothing = scaled(-np.inf)
    sy.testing.assert_properly_weighted(sy.propose(nothing, guide), particles=2)
    calls: list[int] = []

    def sometimes(s: sy.State) -> None:
        calls.append(1)
        s.sample("z", dist.Bernoulli(0.3))
        # Impossible where the density is asked for, and possible when it is run.
        s.factor("f", -np.inf if len(calls) <= 2 else 0.0)

    with pytest.raises(AssertionError, match=r"density 0"):
        sy.testing.assert_properly_weighted(sometimes, particles=1)


def gaussian(s: sy.State, x: jax.Array) -> None:
    s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.5, 1.0)), 1.0), x)


EXACT = float(dist.Normal(0.5, 2**0.5).log_prob(1.5))


def test_evidence_of_the_right_size_passes_and_tells_how_sure_it_is() -> None:
    evidence = sy.testing.check_evidence(gaussian, EXACT, 1.5, key=KEY, particles=500)
    assert abs(evidence.ratio - 1) < 0.02
    assert 0.0005 < evidence.standard_error <= 0.0125
    assert evidence.z_score == pytest.approx((evidence.ratio - 1) / evidence.standard_error, rel=1e-3)


@pytest.mark.parametrize("factor", [1.05, 1 / 1.05, 2.0])
def test_evidence_that_is_off_is_found(factor: float) -> None:
    with pytest.raises(AssertionError, match=r"gaussian: Z / exact = .* standard errors from 1"):
        sy.testing.check_evidence(gaussian, EXACT + np.log(factor), 1.5, key=KEY, particles=1000)


def test_evidence_that_is_too_noisy_to_tell_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"gaussian: .* standard error of .* more than 0\.0125\. Use more"):
        sy.testing.check_evidence(gaussian, EXACT, 1.5, key=KEY, particles=3, runs=10)


def test_evidence_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(AssertionError):
        sy.testing.check_evidence(lambda s: s.factor("f", jnp.nan), 0.0, key=KEY, particles=3, runs=10)


@pytest.mark.parametrize("log_z", [0.0, 0.7, -51.3])
def test_an_estimate_without_variance_is_judged_up_to_rounding(log_z: float) -> None:
    """As with a perfect proposal: every weight is Z, in single precision."""

    def constant(s: sy.State) -> None:
        s.factor("a", log_z / 3)
        s.factor("b", 2 * log_z / 3)

    evidence = sy.testing.check_evidence(constant, log_z, key=KEY, particles=3)
    assert abs(evidence.z_score) < 4
    with pytest.raises(AssertionError):
        sy.testing.check_evidence(constant, log_z + 0.001, key=KEY, particles=3)


def test_evidence_beyond_single_precision_asks_for_more_digits() -> None:
    def much_data(s: sy.State) -> None:
        s.factor("data", -1e6)
        gaussian(s, jnp.asarray(1.5))

    with pytest.raises(AssertionError, match=r"log Z = -1e\+06 is known to 0\.48 at best in float32\. .*enable_x64"):
        sy.testing.check_evidence(much_data, EXACT - 1e6, key=KEY, particles=500)
    with jax.enable_x64(True):
        sy.testing.check_evidence(much_data, EXACT - 1e6, key=KEY, particles=500)
        with pytest.raises(AssertionError, match="standard errors"):
            sy.testing.check_evidence(much_data, EXACT - 1e6 + np.log(1.1), key=KEY, particles=500)


def test_evidence_that_is_off_by_more_than_a_float_holds() -> None:
    for log_z, error in ((2000.0, AssertionError), (-2000.0, AssertionError), (-np.inf, sy.ArgumentError)):
        with pytest.raises(error):
            sy.testing.check_evidence(gaussian, log_z, 1.5, key=KEY, particles=10, runs=10)
