"""Densities of addresses that a kernel took are not those of the target, whatever the kernel does there."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    u = s.sample("u", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    s.factor("prior", -0.1 * u**2)
    return z


def guide(s: sy.State, x: Any) -> Any:
    s.sample("u", dist.Normal(0.1, 1.1))
    return s.sample("z", dist.Normal(0.8 * x, 0.6))


def moved(s: sy.State, z: Any) -> Any:
    return s.sample("z", dist.Normal(0.9 * z, 0.4))


def observing(s: sy.State, z: Any) -> Any:
    s.observe("x", dist.Normal(z, 1.5), 0.7)
    return moved(s, z)


def sampling(s: sy.State, z: Any) -> Any:
    s.sample("x", dist.Normal(z, 1.5))
    return z


def weighing(s: sy.State, z: Any) -> Any:
    s.factor("x", jnp.sin(z))
    s.factor("prior", 0.3 * z)
    return z


@pytest.mark.parametrize("kernel", [moved, observing, sampling, weighing])
@pytest.mark.parametrize("resampled", [False, True])
def test_results_do_not_depend_on_reuse(kernel: Any, resampled: bool) -> None:
    q: Any = sy.propose(model, guide)
    q = sy.propose(model, sy.move(kernel, sy.resample(q) if resampled else q))
    q = sy.propose(model, sy.move(moved, q))
    with jax.enable_x64(True):
        fast, plain = (
            sy.evaluate(q, jax.random.key(0), 1.3, particles=50, optimize=optimize) for optimize in (True, False)
        )
    np.testing.assert_allclose(fast.log_weight, plain.log_weight, rtol=1e-12, atol=1e-12)
    for a in plain.log_density:
        np.testing.assert_allclose(fast.log_density[a], plain.log_density[a], rtol=1e-12, err_msg=a)
