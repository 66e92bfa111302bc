"""A hidden Markov model with three asymmetric states against the forward algorithm."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import steelyard as sy
from steelyard.types import Method
from tests.evidence.exact import forward_algorithm

pytestmark = pytest.mark.long

INITIAL = np.array([0.6, 0.3, 0.1])
TRANSITION = np.array([[0.7, 0.25, 0.05], [0.1, 0.6, 0.3], [0.45, 0.05, 0.5]])
MEANS, SCALES = np.array([-1.0, 0.5, 3.0]), np.array([0.5, 1.0, 1.5])
XS = np.array([-0.8, -1.4, 0.3, 1.1, 4.2, 2.0, -0.6, 0.9, 5.1, -1.0, -0.2, 1.7])
LIKELIHOOD = scipy.stats.norm.pdf(XS[:, None], MEANS, SCALES)
LOG_Z = forward_algorithm(INITIAL, TRANSITION, LIKELIHOOD)

Carried = tuple[jax.Array, jax.Array]


def rows(z: jax.Array) -> jax.Array:
    return jnp.asarray(TRANSITION)[z]


def start(s: sy.State, xs: jax.Array) -> Carried:
    return emit(s, s.sample("z0", dist.Categorical(jnp.asarray(INITIAL))), xs, 0)


def emit(s: sy.State, z: jax.Array, xs: jax.Array, t: int) -> Carried:
    s.observe(f"x{t}", dist.Normal(jnp.asarray(MEANS)[z], jnp.asarray(SCALES)[z]), xs[t])
    return z, xs


def step(t: int) -> Any:
    def transition(s: sy.State, carried: Carried) -> Carried:
        z, xs = carried
        return emit(s, s.sample(f"z{t}", dist.Categorical(rows(z))), xs, t)

    return transition


def guide(t: int) -> Any:
    """The locally optimal proposal, p(z_t | z_{t-1}, x_t)."""

    def optimal(s: sy.State, carried: Carried) -> None:
        z, xs = carried
        logits = jnp.log(rows(z)) + dist.Normal(jnp.asarray(MEANS), jnp.asarray(SCALES)).log_prob(xs[t])
        s.sample(f"z{t}", dist.Categorical(logits=logits))

    return optimal


def bootstrap(steps: int, method: str, threshold: float | None) -> Any:
    q: Any = start
    for t in range(1, steps):
        q = sy.resample(sy.compose(step(t), q), method=cast(Method, method), threshold=threshold)
    return q


def guided(steps: int, method: str | None, threshold: float | None) -> Any:
    q: Any = start
    for t in range(1, steps):
        q = q if method is None else sy.resample(q, method=cast(Method, method), threshold=threshold)
        q = sy.compose(sy.propose(step(t), guide(t)), q)
    return q


def check(q: Any, log_z: float, **options: float) -> Any:
    return sy.testing.check_evidence(
        q, log_z, jnp.asarray(XS), key=jax.random.key(1), particles=1000, runs=200, **options
    )


def test_bootstrap_filter_that_resamples_at_every_step() -> None:
    check(bootstrap(12, "stratified", None), LOG_Z)


@pytest.mark.parametrize(("method", "threshold"), [("residual", 0.5), (None, None)], ids=["where needed", "never"])
def test_guided_filter(method: str | None, threshold: float | None) -> None:
    check(guided(12, method, threshold), LOG_Z)


def test_evidence_that_is_off_by_a_twentieth_is_noticed() -> None:
    q, exact = bootstrap(2, "multinomial", 0.5), forward_algorithm(INITIAL, TRANSITION, LIKELIHOOD[:2])
    assert check(q, exact).standard_error <= 0.0125
    for factor in (1.05, 1 / 1.05):
        with pytest.raises(AssertionError, match="standard errors from 1"):
            check(q, exact + np.log(factor))


def test_an_observation_left_out_is_noticed() -> None:
    def forgets(s: sy.State, carried: Carried) -> Carried:
        z, xs = carried
        return s.sample("z2", dist.Categorical(rows(z))), xs

    exact = forward_algorithm(INITIAL, TRANSITION, LIKELIHOOD[:3])
    with pytest.raises(AssertionError, match="standard errors from 1"):
        check(sy.compose(forgets, bootstrap(2, "systematic", None)), exact, max_standard_error=1.0)


def test_the_posterior_of_the_last_state() -> None:
    alpha = INITIAL * LIKELIHOOD[0]
    for row in LIKELIHOOD[1:4]:
        alpha = alpha @ TRANSITION * row
    posterior = alpha / alpha.sum()

    @jax.jit
    def run(key: jax.Array) -> jax.Array:
        out = sy.evaluate(guided(4, "systematic", None), key, jnp.asarray(XS), particles=20_000)
        return out.expect(lambda trace: jax.nn.one_hot(trace["z3"], 3))

    np.testing.assert_allclose(run(jax.random.key(5)), posterior, atol=0.02)
    assert np.abs(posterior - posterior[[1, 2, 0]]).min() > 0.04
