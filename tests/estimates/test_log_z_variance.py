"""The variance of log Z from the genealogy of a single run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.estimates.genealogy import relative_variance

KEY = jax.random.key(4)
MOVES = np.array([[0.7, 0.3], [0.2, 0.8]])


def test_a_small_case_by_hand() -> None:
    w, eves, resamplings = np.array([1.0, 2.0, 3.0, 4.0]), np.array([3, 3, 0, 1]), 2
    unrelated = sum(w[i] * w[j] for i in range(4) for j in range(4) if eves[i] != eves[j])
    expected = 1 - (4 / 3) ** 3 * unrelated / w.sum() ** 2
    for offset in (0.0, -3000.0):
        assert relative_variance(np.log(w) + offset, eves, resamplings) == pytest.approx(expected, rel=1e-12)
        ours = relative_variance(jnp.log(w) + offset, jnp.asarray(eves), resamplings)
        assert float(ours) == pytest.approx(expected, rel=1e-3 if offset else 1e-5)


def test_without_resampling_it_is_that_of_an_average() -> None:
    w = np.array([0.2, 1.0, 3.0, 0.7, 0.0])
    with np.errstate(divide="ignore"):
        found = relative_variance(np.log(w), np.arange(5), 0)
    assert found == pytest.approx(w.var(ddof=1) / 5 / w.mean() ** 2, rel=1e-12)


def test_many_particles_leave_digits() -> None:
    size = 2**20
    w = np.random.default_rng(0).gamma(2.0, size=size).astype(np.float32)
    found = relative_variance(jnp.log(w), jnp.arange(size), 0)
    assert float(found) == pytest.approx(w.astype(float).var() / size / w.astype(float).mean() ** 2, rel=1e-3)


def first(s: sy.State) -> Any:
    z = s.sample("z0", dist.Bernoulli(0.3))
    s.factor("y0", jnp.log(1.0 + 2.0 * z))
    return z


def step(t: int) -> Any:
    def transition(s: sy.State, z: Any) -> Any:
        z = s.sample(f"z{t}", dist.Categorical(jnp.asarray(MOVES)[z]))
        s.factor(f"y{t}", jnp.log(0.5 + t * z))
        return z

    return transition


@pytest.mark.parametrize(("particles", "steps"), [(2, 2), (3, 1)])
def test_it_is_unbiased_over_all_outcomes(particles: int, steps: int) -> None:
    q: Any = first
    for t in range(1, steps + 1):
        q = sy.compose(step(t), sy.resample(q, method="multinomial"))
    p, z, v = np.array([
        (p, np.exp(out.log_z), out.log_z_variance) for p, out in sy.testing.enumerate(q, particles=particles)
    ]).T  # fmt: skip
    # Outcomes in which all descend from one particle say 1, which is no information in a single run.
    assert np.isnan(v).any() and (v < 0).any()
    v = np.where(np.isnan(v), 1.0, v)
    exact = p @ z**2 - (p @ z) ** 2
    assert p @ (z**2 * v) == pytest.approx(exact, rel=1e-9)


def filters(method: Any, threshold: Any = None) -> Any:
    def start(s: sy.State) -> Any:
        s.factor("y", 0.0)
        return s.sample("z", dist.Normal(0.4, 1.0))

    def advance(q: Any, y: Any) -> Any:
        def transition(s: sy.State, z: Any) -> Any:
            z = s.sample("z", dist.Normal(0.9 * z, 0.7))
            s.observe("y", dist.Normal(z, 0.5), y)
            return z

        return sy.move(transition, sy.resample(q, method=method, threshold=threshold))

    return sy.scan(advance, start, jnp.array([0.3, 1.5, -0.5]), keep=[])


def test_independent_runs_vary_as_one_run_says() -> None:
    runs = 1000
    q = filters("multinomial")

    def run(key: Any) -> Any:
        out = sy.evaluate(q, key, particles=60)
        return out, out.log_z_variance

    out, inside = jax.jit(jax.vmap(run))(jax.random.split(KEY, runs))
    v, z = np.asarray(out.log_z_variance, float), np.exp(np.asarray(out.log_z, float))
    np.testing.assert_allclose(inside, v, rtol=1e-4, atol=1e-6)
    z = z / z.mean()
    # The standard error of a variance from 1000 runs is about 5 percent; that of the mean of V is smaller.
    assert np.mean(z**2 * v) == pytest.approx(z.var(ddof=1), rel=0.2)
    one = jax.tree.map(lambda x: x[0], out)
    assert f"standard error of log Z, from the ancestors of this run: {v[0] ** 0.5:.4g}" in repr(one)
    assert "standard error of log Z" in one._repr_html_()
    assert "standard error" not in repr(out)


def test_it_is_not_claimed_where_it_does_not_hold() -> None:
    def run(q: Any, particles: int = 6) -> sy.Evaluation:
        return sy.evaluate(q, KEY, particles=particles, engine="universal")

    systematic = run(filters("systematic"))
    assert np.isnan(systematic.log_z_variance) and "standard error" not in repr(systematic)
    # With a threshold that no step passes nothing was resampled, by whatever method.
    assert np.isfinite(run(filters("systematic", 1e-3)).log_z_variance)
    multinomial = run(filters("multinomial"), 40)
    assert np.isfinite(multinomial.log_z_variance)
    assert np.isnan(multinomial.resample(KEY).log_z_variance)
    assert "standard error" not in repr(multinomial.resample(KEY))
    assert np.isnan(run(filters("multinomial"), 1).log_z_variance)
    one = run(sy.resample(lambda s: s.factor("f", jnp.where(s.sample("z", dist.Bernoulli(0.02)), 0.0, -99.0))), 1)
    assert "standard error" not in repr(one)


def test_one_ancestor_says_so() -> None:
    def peaked(s: sy.State) -> None:
        s.factor("f", -1e4 * s.sample("z", dist.Normal(0.0, 1.0)) ** 2)

    out = sy.evaluate(sy.resample(peaked, method="multinomial"), KEY, particles=5, engine="universal")
    assert len(set(out.ancestors.tolist())) == 1 and np.isnan(out.log_z_variance)
    assert "standard error of log Z: unknown, all weight descends from one particle" in repr(out)
