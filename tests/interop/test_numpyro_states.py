"""Programs as NumPyro models have the same density, and NUTS runs on them."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

import steelyard as sy

KEY = jax.random.key(0)


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Gamma(2.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    with s.when(z > 1.0):
        s.observe("more", dist.Normal(z, 0.1), jnp.array([0.9, 1.2]))
        s.factor("bonus", 0.3 * z)
    with s.when(False):
        s.sample("never", dist.Normal(0.0, 1.0))
        s.observe("never seen", dist.Normal(0.0, 1.0), 3.0)
    return z


def kernel(s: sy.State, z: Any) -> Any:
    return s.sample("u", dist.Normal(z, jnp.ones(2)))


PROGRAMS = {
    "primitive": (model, {"z": 1.4}),
    "absent": (model, {"z": 0.7}),
    "extend": (sy.extend(sy.rename(model, {"z": "w"}), kernel), {"w": 1.4, "u": jnp.array([0.3, 2.0])}),
    "prev": (
        sy.extend(model, sy.prev(lambda s, z: s.sample("z", dist.Normal(z, 1.0)))),
        {"z": 1.4, sy.previous("z"): 0.2},
    ),
    "temper": (sy.temper(model, 0.3), {"z": 1.4}),
    "prior": (sy.temper(model, 0.0), {"z": 0.4}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_density_is_the_same(name: str) -> None:
    p, trace = PROGRAMS[name]
    total, sites = log_density(sy.to_numpyro(p), (1.3,), {}, trace)
    np.testing.assert_allclose(total, sy.log_density(p, trace, 1.3), rtol=1e-5)
    assert {a for a, site in sites.items() if site["type"] == "sample" and not site["is_observed"]} == set(trace)


def test_nuts_runs_on_a_program() -> None:
    def conjugate(s: sy.State, x: Any) -> None:
        s.observe("x", dist.Poisson(s.sample("rate", dist.Gamma(3.0, 2.0))), x)

    x = np.array([2, 0, 1, 4])
    nuts = MCMC(NUTS(sy.to_numpyro(conjugate)), num_warmup=200, num_samples=1000, progress_bar=False)
    nuts.run(KEY, jnp.asarray(x))
    mean, variance = (3.0 + x.sum()) / (2.0 + 4), (3.0 + x.sum()) / (2.0 + 4) ** 2
    assert abs(nuts.get_samples()["rate"].mean() - mean) < 4 * (variance / 300) ** 0.5


def test_there_and_back_is_the_same_program() -> None:
    def plain(s: sy.State, x: Any) -> Any:
        z = s.sample("z", dist.Gamma(2.0, 1.0))
        s.observe("x", dist.Normal(z, 0.5), x)
        return z

    back = sy.from_numpyro(sy.to_numpyro(plain))
    ours, theirs = (sy.evaluate(p, KEY, 1.3, particles=3) for p in (plain, back))
    np.testing.assert_array_equal(ours.log_weight, theirs.log_weight)
    np.testing.assert_array_equal(ours.value, theirs.value)


def test_what_numpyro_cannot_have_is_refused() -> None:
    def sometimes(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        with s.when(z > 0):
            s.sample("u", dist.Normal(0.0, 1.0))

    def foreign(s: sy.State) -> None:
        s.sample("z", SimpleNamespace(sample=lambda seed: 0.0, log_prob=lambda x: 0.0))

    with pytest.raises(sy.ArgumentError, match="'u' exists only where"):
        jax.jit(lambda z: log_density(sy.to_numpyro(sometimes), (), {}, {"z": z, "u": 0.0})[0])(1.0)
    with pytest.raises(sy.ArgumentError, match="not one of NumPyro's"):
        log_density(sy.to_numpyro(foreign), (), {}, {"z": 0.0})
    with pytest.raises(sy.GrammarError, match="target program"):
        sy.to_numpyro(sy.resample(model))
