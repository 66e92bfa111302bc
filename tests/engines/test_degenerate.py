"""Weights that carry no information are errors that say where they come from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import steelyard as sy

KEY = jax.random.key(0)
ENGINES = ("vectorized", "universal")


def plain(s: sy.State) -> Any:
    return s.sample("z", dist.Normal(0.0, 1.0))


def some_nan(s: sy.State) -> Any:
    z = plain(s)
    s.factor("first", 0.0)
    s.factor("logarithm", jnp.log(z))
    s.factor("root", jnp.sqrt(z))
    return z


@pytest.mark.parametrize("engine", ENGINES)
def test_the_address_is_named_where_only_some_particles_are_nan(engine: Any) -> None:
    with pytest.raises(
        sy.WeightError, match=r"[1-9] of 10 particles have weight NaN; the density at 'logarithm' in some_nan"
    ):
        sy.evaluate(some_nan, KEY, particles=10, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_proposal_is_named_if_it_is_to_blame(engine: Any) -> None:
    with pytest.raises(sy.WeightError, match=r"from propose\(plain\) on; the density at 'logarithm' in some_nan"):
        sy.evaluate(sy.propose(plain, some_nan), KEY, particles=10, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("value", "problem"),
    [(jnp.nan, "weight NaN"), (-jnp.inf, "every particle has weight zero"), (jnp.inf, "weight infinite")],
)
def test_scans_of_bad_weights(engine: Any, value: float, problem: str) -> None:
    def target(s: sy.State, log_value: Any = 0.0) -> Any:
        z = plain(s)
        s.factor("f", log_value)
        return z

    def kernel(s: sy.State, z: Any) -> Any:
        return s.sample("z", dist.Normal(z, 0.1))

    def step(q: Any, log_value: Any) -> Any:
        return sy.propose(sy.extend(lambda s: target(s, log_value), sy.prev(kernel)), sy.move(kernel, q))

    q = sy.scan(step, target, jnp.array([0.0, 0.0, value]))
    with pytest.raises(sy.WeightError, match=problem):
        sy.evaluate(q, KEY, particles=4, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_infinite_weight_is_an_error(engine: Any) -> None:
    def pole(s: sy.State) -> Any:
        z = plain(s)
        s.factor("pole", jnp.where(z < 0, jnp.inf, 0.0))
        return z

    for q in (pole, sy.resample(pole), sy.propose(pole, plain)):
        with pytest.raises(sy.WeightError, match="weight infinite"):
            sy.evaluate(q, KEY, particles=10, engine=engine)
    with pytest.raises(sy.WeightError, match="the density at 'pole' in pole is the first to blame"):
        sy.evaluate(pole, KEY, particles=10, engine=engine)
