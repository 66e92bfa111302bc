"""Densities of NumPyro models as programs are those that NumPyro says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import steelyard as sy
from tests.interop.models import CASES

PARTICLES = 10


def total(densities: Any) -> Any:
    return sum(densities.values(), start=jnp.zeros(()))


@pytest.mark.parametrize("name", CASES)
def test_density_is_that_of_numpyro(name: str) -> None:
    model, args, learned = CASES[name]
    params = sy.numpyro_params(model, jax.random.key(1), *args) if learned else None
    p = sy.from_numpyro(model, params)

    seeded = model
    if learned:
        # NumPyro's own way to bring parameters in: constrained, by the names of their sites.
        with handlers.block(), handlers.trace() as sites, handlers.seed(rng_seed=jax.random.key(1)):
            model(*args)
        values = {name: site["value"] for name, site in sites.items() if site["type"] == "param"}
        seeded = handlers.substitute(model, data=values)

    def reference(trace: dict[str, Any]) -> Any:
        return log_density(seeded, args, {}, trace)[0]

    @jax.jit
    def all_densities(key: Any) -> Any:
        out = sy.evaluate(p, key, *args, particles=PARTICLES)
        trace = dict(out.trace)
        at_trace = jax.vmap(lambda t: sy.log_density(p, t, *args))(trace)
        return out.log_weight, total(out.log_density), at_trace, jax.vmap(reference)(trace)

    weight, drawn, at_trace, expected = map(np.asarray, all_densities(jax.random.key(0)))
    assert expected.shape == (PARTICLES,) and np.isfinite(expected).all()
    np.testing.assert_allclose(drawn, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(at_trace, expected, rtol=1e-5, atol=1e-5)
    assert np.isfinite(weight).all()
