"""A Gaussian factor under a uniform prior on a square: proposals that leave the square have weight zero.

With the factor exp(-|z - m|^2 / 2), and so without the constant of its density,

    Z = 1/100 int_{[-5, 5]^2} exp(-|z - m|^2 / 2) dz = 2 pi / 100 prod_i (Phi(5 - m_i) - Phi(-5 - m_i))
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import steelyard as sy

pytestmark = pytest.mark.long


def exact(center: np.ndarray) -> float:
    inside = scipy.stats.norm.cdf(5 - center) - scipy.stats.norm.cdf(-5 - center)
    return float(np.log(2 * np.pi) - 2 * np.log(10) + np.log(inside).sum())


def model(s: sy.State, center: jax.Array) -> None:
    z = s.sample("z", dist.Uniform(-5.0, 5.0).expand([2]))
    s.factor("x", -0.5 * jnp.sum((z - center) ** 2))


def guide(s: sy.State, center: jax.Array) -> None:
    s.sample("z", dist.Normal(center, 1.0))


def test_the_figure_of_the_field() -> None:
    assert exact(np.zeros(2)) == pytest.approx(-2.7673, abs=5e-5)


@pytest.mark.parametrize("center", [(0.0, 0.0), (4.2, -3.5)], ids=["middle", "corner"])
def test_proposals_that_leave_the_support(center: tuple[float, float]) -> None:
    c = np.array(center)
    for q in (sy.propose(model, guide), sy.resample(sy.propose(model, guide), threshold=0.9)):
        sy.testing.check_evidence(q, exact(c), jnp.asarray(c), key=jax.random.key(0), particles=200, runs=100)


def test_what_leaves_the_support_has_weight_zero_and_is_not_drawn() -> None:
    c = jnp.array([4.2, -3.5])
    out = sy.evaluate(sy.propose(model, guide), jax.random.key(1), c, particles=500)
    outside = np.abs(np.asarray(out.trace["z"])).max(axis=1) > 5
    assert 0.15 < outside.mean() < 0.4
    assert (np.isneginf(out.log_weight) == outside).all()
    kept = sy.evaluate(sy.resample(sy.propose(model, guide)), jax.random.key(1), c, particles=500)
    assert np.abs(np.asarray(kept.trace["z"])).max() <= 5


def test_forgetting_the_support_would_be_noticed() -> None:
    def unbounded(s: sy.State, center: jax.Array) -> None:
        z = s.sample("z", dist.Normal(center, 1.0))
        # What NumPyro's Uniform(-5, 5).log_prob says, wherever the value is.
        s.factor("prior", 2 * -jnp.log(10.0) - dist.Normal(center, 1.0).log_prob(z).sum())
        s.factor("x", -0.5 * jnp.sum((z - center) ** 2))

    c = np.array([4.2, -3.5])
    with pytest.raises(AssertionError, match="standard errors from 1"):
        sy.testing.check_evidence(unbounded, exact(c), jnp.asarray(c), key=jax.random.key(0), particles=200, runs=100)


def test_the_gradient_with_respect_to_the_center_is_finite_and_right() -> None:
    c = np.array([4.2, -3.5])

    def log_z(center: jax.Array) -> jax.Array:
        return sy.evaluate(sy.propose(model, guide), jax.random.key(2), center, particles=20_000).log_z

    # d/dc log Z = (phi(-5 - c) - phi(5 - c)) / (Phi(5 - c) - Phi(-5 - c)). The draws move with the center, so that
    # the pathwise gradient misses what passes over the edge; the centers of the draws are held instead.
    def held(center: jax.Array) -> jax.Array:
        def fixed(s: sy.State, _: jax.Array) -> None:
            s.sample("z", dist.Normal(jnp.asarray(c), 1.0))

        return sy.evaluate(sy.propose(model, fixed), jax.random.key(2), center, particles=20_000).log_z

    norm = scipy.stats.norm
    expected = (norm.pdf(-5 - c) - norm.pdf(5 - c)) / (norm.cdf(5 - c) - norm.cdf(-5 - c))
    assert np.isfinite(jax.grad(log_z)(jnp.asarray(c))).all()
    np.testing.assert_allclose(jax.jit(jax.grad(held))(jnp.asarray(c)), expected, atol=0.03)
