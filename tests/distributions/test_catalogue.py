"""Every distribution: what it draws, what density that has, and that it is its own best proposal."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats

import steelyard as sy
from steelyard.compiler.draws import sampler_of
from steelyard.distributions.densities import log_prob
from steelyard.distributions.distribution import settled
from tests.distributions.catalogue import EXCLUDED, cases, made_by_functions, wrapped

PARTICLES = 500
# Few functions, each of several distributions: most of the time is spent compiling.
GROUPS = 16
LEVEL = 1e-7
# NumPyro takes a part of these for positive outside of its support; see test_supports.py.
UNLIKE = {"two intervals", "folded interval", "ZeroInflatedProbs"}
# Where NumPyro's draws underflow before they could be put back.
UNDERFLOW = {"logarithm", "HurdleGamma", "HurdleLogNormal", "StudentT", "MultivariateStudentT"}
SMALL = 1e-36
# NumPyro's densities of these subtract the logarithm of the gamma function, at extreme parameters at this number, from
# terms as large. Compiled in two ways, which depends on the processor too, each of the three terms may be rounded the
# other way: three units in the last place, of 0.0625, 0.008 and 0.004.
LOG_GAMMA_AT = {"Dirichlet": 55_000, "Gamma": 10_000, "Chi2": 5_000}
ROUNDING = {name: 3 * float(np.spacing(np.float32(scipy.special.gammaln(x)))) for name, x in LOG_GAMMA_AT.items()}
# This one draws numbers up to the largest integer, at which the gamma function is 4e10 and its spacing 4096. The weight
# of a proposal is computed in one way and stays exact.
OF_DENSITIES = ROUNDING | {"NegativeBinomialLogits": float(np.spacing(np.float32(scipy.special.gammaln(2.0**31))))}
ATOMS = {"Delta", "Unit", "GeometricProbs", "GeometricLogits", "spike and slab", "Levy near its edge"}


def test_no_distribution_is_left_out() -> None:
    """Whatever NumPyro adds belongs in the catalogue, or is excluded for a reason."""
    callables = {name for name in dist.__all__ if callable(getattr(dist, name))}
    assert callables == {*cases(), *made_by_functions(), *EXCLUDED}
    made = {type(d) for examples in cases().values() for d in examples}
    assert {getattr(dist, name) for name in cases()} == made
    # What a function makes is of a class that is there, if not the one that NumPyro keeps to itself.
    assert {type(d) for examples in made_by_functions().values() for d in examples} <= made


@pytest.fixture(scope="module")
def catalogue() -> list[list[tuple[str, list[Any]]]]:
    everything = [*cases().items(), *wrapped().items()]
    return [everything[group::GROUPS] for group in range(GROUPS)]


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_distribution_is_its_own_best_proposal(catalogue: Any, group: int) -> None:
    names, examples = zip(*catalogue[group], strict=True)

    @jax.jit
    def compare(key: jax.Array, distributions: list[Any]) -> Any:
        # NumPyro's copy of this one under `jit` has lost its support.
        distributions = [examples[i][0] if d is None else d for i, d in enumerate(distributions)]

        def program(s: sy.State) -> None:
            for name, distribution in zip(names, distributions, strict=True):
                s.sample(name, distribution)

        out = sy.evaluate(sy.propose(program, program), key, particles=PARTICLES)
        weights, theirs, drawn = {}, {}, {}
        for a, d in zip(names, distributions, strict=True):
            weights[a] = out.log_density[a] - jax.vmap(lambda z, d=d: log_prob(d, z))(out.trace[a])
            theirs[a] = jax.vmap(lambda z, d=d: jnp.sum(d.log_prob(z)))(out.trace[a])
            if sampler_of(d):
                raw = d.sample(key, (PARTICLES,))
                drawn[a] = raw, settled(d, raw)
        return out.log_z, weights, out.trace, out.log_density, theirs, drawn

    for number in range(max(map(len, examples))):
        chosen = [each[min(number, len(each) - 1)] for each in examples]
        chosen = [None if name.startswith("Levy") else d for name, d in zip(names, chosen, strict=True)]
        # NumPyro broadcasts.
        with jax.numpy_rank_promotion("allow"):
            log_z, weights, trace, densities, theirs, drawn = compare(jax.random.key(number), chosen)
        for name in names:
            message = f"{name}, case {number}"
            density, values = np.asarray(densities[name]), trace[name]
            size, rounding = 1 + np.abs(density).max(), OF_DENSITIES.get(name, 0.0) if number else 0.0
            if name == "BetaNegativeBinomial":
                # Its tail is heavy, and its density a difference of gamma functions at what was drawn.
                rounding += 3 * float(np.spacing(np.float32(scipy.special.gammaln(float(values.max()) + 1))))
            small = (1e-4 if number else 1e-6) * size + rounding
            np.testing.assert_allclose(weights[name], 0.0, atol=small, err_msg=message)
            if name not in UNLIKE:
                np.testing.assert_allclose(
                    density, theirs[name], rtol=1e-6, atol=1e-4 * size + rounding, err_msg=message
                )
            if name not in drawn:
                # Drawn by NumPyro. At ordinary parameters nothing is moved: no two numbers are the same, but by chance. Of
                # 500 numbers of 24 bits two are, once in 130 times.
                is_continuous = np.issubdtype(values.dtype, np.floating) and name not in ATOMS
                assert number or not is_continuous or np.unique(values, axis=0).shape[0] >= PARTICLES - 1, message
            elif not (number and name in UNDERFLOW):
                for ours, other in columns(values, drawn[name][min(number, 1)]):
                    assert scipy.stats.ks_2samp(ours, other, method="asymp").pvalue > LEVEL, message
        assert abs(log_z) < (max(0.02, *(1.1 * ROUNDING.get(name, 0.0) for name in names)) if number else 1e-5)


def columns(ours: Any, theirs: Any) -> Any:
    """Return the numbers that are drawn, the first three of an array."""
    a, b = (np.asarray(x, float).reshape(PARTICLES, -1)[:, :3].T for x in (ours, theirs))
    # Numbers that underflow are put on one point, which is not the same in both.
    a, b = (np.where(np.abs(x) < SMALL, 0.0, x) for x in (a, b))
    return zip(a, b, strict=True)
