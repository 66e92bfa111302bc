"""The checks of proper weighting find what is wrong, and pass what is right."""

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
