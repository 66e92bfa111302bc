"""What may be observed at a distribution: every number once, whatever it is given as."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, run

ROW = dist.Normal(jnp.zeros(3), 1.0)
VECTOR = dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3))


def observing(distribution: Any, value: Any) -> Any:
    def model(s: sy.State) -> None:
        s.observe("x", distribution, value)

    return model


@pytest.mark.parametrize(
    ("distribution", "shape"),
    [
        (dist.Normal(0.0, 1.0), ()),
        (dist.Normal(0.0, 1.0), (4,)),
        (dist.Normal(0.0, 1.0), (4, 3)),
        (ROW, (3,)),
        (ROW.to_event(1), (10, 3)),
        (VECTOR, (3,)),
        (VECTOR, (3, 3)),
        (VECTOR, (2, 4, 3)),
        (VECTOR.expand([3]), (3, 3)),
        (dist.Uniform(-jnp.ones(3), 5.0).to_event(1), (10, 3)),
        (dist.Gamma(2.0, 1.0), (0,)),
    ],
)
def test_the_density_of_data_is_the_sum_of_the_densities_of_rows(distribution: Any, shape: tuple[int, ...]) -> None:
    value = np.asarray(jax.random.normal(KEY, shape)) ** 2
    # NumPyro itself broadcasts its parameters against rows of data.
    with jax.numpy_rank_promotion("allow"):
        out = run(observing(distribution, value), particles=2)
        expected = np.sum(distribution.log_prob(value))
    np.testing.assert_allclose(out.log_weight, [expected] * 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("distribution", "shape", "remedy"),
    [
        (ROW, (3, 1), "reshape"),
        (ROW, (), "broadcast_to"),
        (ROW, (1,), "broadcast_to"),
        (ROW, (10, 3), r"\.to_event\(1\)"),
        (ROW, (3, 3), r"\.to_event\(1\)"),
        (ROW, (4,), "reshape"),
        (ROW.to_event(1), (), "reshape"),
        (ROW.to_event(1), (3, 1), "reshape"),
        (VECTOR, (), "reshape"),
        (VECTOR, (1,), "reshape"),
        (VECTOR, (3, 1), "reshape"),
        (VECTOR.expand([2]), (3,), "reshape"),
        (VECTOR.expand([2]), (5, 2, 3), r"\.to_event\(1\)"),
        (dist.Normal(jnp.zeros((2, 3)), 1.0), (5, 2, 3), r"\.to_event\(2\)"),
        (dist.Normal(jnp.zeros(1), 1.0), (), "reshape"),
        (dist.Normal(jnp.zeros(1), 1.0), (3,), "reshape"),
        (dist.Dirichlet(jnp.ones(3)), (1,), "reshape"),
        (dist.Bernoulli(jnp.full(3, 0.5)), (3, 1), "reshape"),
        (dist.Normal(0.0, 1.0).mask(np.array([True, False])), (3,), "reshape"),
    ],
)
@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_nothing_broadcasts(distribution: Any, shape: tuple[int, ...], remedy: str, engine: Any) -> None:
    with pytest.raises(sy.AddressError, match=remedy) as caught:
        sy.evaluate(observing(distribution, np.zeros(shape)), KEY, particles=2, engine=engine)
    for part in ("'x'", "model", str(shape), str(distribution.batch_shape), str(distribution.event_shape)):
        assert part in str(caught.value)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_lists_become_arrays(engine: Any) -> None:
    seen = []

    def model(s: sy.State) -> None:
        seen.append(s.observe("x", dist.Normal(0.0, 1.0), [0.5, 1.0, -2.0]))
        seen.append(s.observe("y", VECTOR, ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))))
        seen.append(s.observe("n", dist.Categorical(jnp.array([0.2, 0.8])), [0, 1, 1]))

    with jax.numpy_rank_promotion("allow"):
        out = sy.evaluate(model, KEY, particles=1, engine=engine)
    expected = [
        dist.Normal(0.0, 1.0).log_prob(np.array([0.5, 1.0, -2.0])).sum(),
        sum(VECTOR.log_prob(row) for row in np.arange(1.0, 7).reshape(2, 3)),
    ]
    np.testing.assert_allclose(
        [out.log_density[a][0] for a in ("x", "y", "n")], [*expected, np.log(0.2 * 0.64)], rtol=1e-5
    )
    assert [np.shape(x) for x in seen[:3]] == [(3,), (2, 3), (3,)]
    with pytest.raises(sy.AddressError, match="'x'"):
        sy.evaluate(observing(VECTOR, [1.0, 2.0]), KEY, particles=1, engine=engine)


def test_a_list_in_a_given_trace() -> None:
    density = sy.log_density(lambda s: s.sample("z", ROW), {"z": [0.5, 1.0, -2.0]})
    np.testing.assert_allclose(density, ROW.log_prob(np.array([0.5, 1.0, -2.0])).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("distribution", "value"),
    [
        (dist.Bernoulli(0.3), True),
        (dist.Bernoulli(0.3), np.array([True, False])),
        (dist.Categorical(jnp.array([0.2, 0.8])), np.array([True, False, True])),
        (dist.Normal(0.0, 1.0), 2),
        (dist.Normal(0.0, 1.0), np.array([True, False])),
        (dist.Gamma(2.0, 1.0), 3),
        (dist.Uniform(0.0, 4.0), np.array([1, 2])),
        (dist.Poisson(2.0), 3.0),
        (dist.Poisson(2.0), np.uint8([3, 4])),
    ],
)
def test_numbers_of_another_type_are_numbers(distribution: Any, value: Any) -> None:
    out = run(observing(distribution, value), particles=1)
    number = np.asarray(value) if distribution.is_discrete else np.asarray(value, float)
    expected = np.sum(distribution.log_prob(number.astype(int) if number.dtype == bool else number))
    np.testing.assert_allclose(out.log_weight[0], expected, rtol=1e-5)


def test_the_class_in_place_of_an_instance() -> None:
    message = r"'z' was given the class Normal .*Normal\(\.\.\.\)"
    with pytest.raises(sy.ArgumentError, match=message):
        sy.evaluate(lambda s: s.sample("z", dist.Normal), KEY, particles=1)
    with pytest.raises(sy.ArgumentError, match=message):
        sy.evaluate(lambda s: s.observe("z", dist.Normal, 0.3), KEY, particles=1)
