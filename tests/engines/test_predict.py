"""Predictions: drawn from each particle, by its own values, in the shape of the data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import steelyard as sy
from tests.running import KEY

SHARP = 1e-5


def line(s: sy.State, x: Any, y: Any) -> Any:
    """Data that are so sharp that a prediction shows which values it was made from."""
    slope = s.sample("slope", dist.Normal(0.0, 1.0))
    first = s.observe("first", dist.Normal(3.0 * slope, SHARP), 0.7)
    s.observe("y", dist.Normal(slope * x, SHARP), y)
    s.observe("after", dist.Normal(2.0 * first, SHARP), 0.2)
    s.factor("f", -0.1 * slope)
    return slope


def wide(s: sy.State, x: Any, y: Any) -> Any:
    """The posterior of another model with the same variable."""
    return s.sample("slope", dist.Normal(0.5, 2.0))


@pytest.fixture(scope="module")
def posterior() -> sy.Evaluation:
    return sy.evaluate(sy.resample(wide), KEY, None, None, particles=6)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_every_particle_predicts_by_its_own_values(posterior: sy.Evaluation, engine: Any) -> None:
    x = jnp.array([1.0, -2.0, 0.5])
    new = sy.predict(line, KEY, x, jnp.zeros(3), posterior=posterior, engine=engine)
    slope = np.asarray(posterior.trace["slope"])
    assert set(new) == {"first", "y", "after"} and len(set(slope)) == 6
    np.testing.assert_allclose(new["y"], slope[:, None] * np.asarray(x), atol=1e-3)
    np.testing.assert_allclose(new["first"], 3 * slope, atol=1e-3)
    # The model goes on with what was drawn, not with what was observed.
    np.testing.assert_allclose(new["after"], 6 * slope, atol=1e-3)


def test_new_sizes_unknown_data_and_names(posterior: sy.Evaluation) -> None:
    x = jnp.linspace(0.0, 1.0, 5)
    new = jax.jit(lambda key, x: sy.predict(line, key, x, None, posterior=posterior, only=["y"]))(KEY, x)
    assert set(new) == {"y"}
    np.testing.assert_allclose(new["y"], np.asarray(posterior.trace["slope"])[:, None] * np.asarray(x), atol=1e-3)
    again = sy.predict(line, KEY, x, None, posterior=posterior)
    np.testing.assert_allclose(again["y"], new["y"], rtol=1e-6)
    other = sy.predict(line, jax.random.key(9), x, None, posterior=posterior)
    assert not np.array_equal(other["y"], again["y"])


class Die:
    """A distribution of another library, for one number."""

    def sample(self, seed: Any) -> Any:
        return jax.random.randint(seed, (), 1, 7)

    def log_prob(self, value: Any) -> Any:
        return jnp.where((value >= 1) & (value <= 6), -jnp.log(6.0), -jnp.inf)


@pytest.mark.parametrize(
    ("distribution", "shape"),
    [
        (dist.Normal(0.0, 1.0), (4, 30)),
        (dist.Normal(jnp.zeros(2), 1.0).to_event(1), (60, 2)),
        (dist.Poisson(3.0), (120,)),
        (Die(), (4, 30)),
    ],
)
def test_rows_of_data_are_independent(distribution: Any, shape: tuple[int, ...]) -> None:
    def p(s: sy.State) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", distribution, np.ones(shape))

    with jax.numpy_rank_promotion("allow"):
        out = jax.jit(lambda key: sy.evaluate(p, key, particles=50))(KEY)
        x = np.asarray(sy.predict(p, KEY, posterior=out)["x"], float)
    assert x.shape == (50, *shape)
    table = x.reshape(50, -1)
    mean, variance = (3.5, 35 / 12) if isinstance(distribution, Die) else (3.0, 3.0) if shape == (120,) else (0.0, 1.0)
    error = np.sqrt(variance / table.size)
    np.testing.assert_allclose(table.mean(), mean, atol=4 * error)
    # Of independent numbers the means of rows, and those of columns, vary as they should: a chi-squared each.
    for means, count in ((table.mean(axis=1), table.shape[1]), (table.mean(axis=0), table.shape[0])):
        ratio = np.sum((means - mean) ** 2) * count / variance
        assert abs(ratio - len(means)) < 5 * np.sqrt(2 * len(means))


def test_weights_are_those_of_the_posterior() -> None:
    """A coin of two kinds: the exact probability that the next toss is a head."""

    def coin(s: sy.State, tosses: Any) -> Any:
        kind = s.sample("kind", dist.Bernoulli(0.3))
        s.observe("toss", dist.Bernoulli(jnp.where(kind == 1, 0.9, 0.2)), tosses)
        return kind

    size = 20_000
    out = jax.jit(lambda key: sy.evaluate(coin, key, jnp.array([1, 1, 0]), particles=size))(KEY)
    new = jax.jit(lambda key: sy.predict(coin, key, jnp.zeros(1, int), posterior=out))(jax.random.key(5))
    odds = np.array([0.7 * 0.2**2 * 0.8, 0.3 * 0.9**2 * 0.1])
    exact = odds @ [0.2, 0.9] / odds.sum()
    error = 4 * np.sqrt(0.25 / float(out.ess))
    np.testing.assert_allclose(out.normalized_weights @ new["toss"][:, 0], exact, atol=error)
    assert abs(0.7 * 0.2 + 0.3 * 0.9 - exact) > 2 * error


def test_variables_that_the_posterior_lacks_are_drawn_as_in_the_model(posterior: sy.Evaluation) -> None:
    def longer(s: sy.State) -> Any:
        slope = s.sample("slope", dist.Normal(0.0, 1.0))
        future = s.sample("future", dist.Normal(10.0 + slope, SHARP))
        s.observe("y", dist.Normal(-future, SHARP), 0.0)

    new = sy.predict(longer, KEY, posterior=posterior)
    slope = np.asarray(posterior.trace["slope"])
    np.testing.assert_allclose(new["future"], 10 + slope, atol=1e-3)
    np.testing.assert_allclose(new["y"], -10 - slope, atol=1e-3)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_what_is_absent_stays_absent(posterior: sy.Evaluation, engine: Any) -> None:
    def masked(s: sy.State) -> Any:
        slope = jnp.asarray(s.sample("slope", dist.Normal(0.0, 1.0)))
        with s.when(slope > 0.5):
            s.observe("y", dist.Normal(slope, SHARP), 7.0)
            s.observe("unknown", dist.Normal(slope, SHARP), None)

    new = sy.predict(masked, KEY, posterior=posterior, engine=engine)
    slope = np.asarray(posterior.trace["slope"])
    assert 0 < np.sum(slope > 0.5) < 6
    for a in ("y", "unknown"):
        np.testing.assert_array_equal(new.present(a), slope > 0.5)
        there = np.asarray(new[a])[slope > 0.5].astype(float)
        np.testing.assert_allclose(there, slope[slope > 0.5], atol=1e-3)


def test_programs_made_of_programs(posterior: sy.Evaluation) -> None:
    def data(s: sy.State, slope: Any) -> Any:
        s.observe("y", dist.Normal(slope, SHARP), 0.0)

    q = sy.resample(sy.rename(sy.compose(data, sy.propose(wide, wide)), {"y": "w"}))
    out = sy.evaluate(sy.temper(wide, 0.5), KEY, None, None, particles=6)
    new = sy.predict(q, KEY, None, None, posterior=out)
    assert set(new) == {"w"}
    np.testing.assert_allclose(new["w"], out.trace["slope"], atol=1e-3)


def test_scales_and_powers_change_nothing(posterior: sy.Evaluation) -> None:
    def p(s: sy.State, scale: float) -> None:
        slope = s.sample("slope", dist.Normal(0.0, 1.0))
        s.observe("y", dist.Normal(slope, 1.0), jnp.zeros(2), scale=scale)

    plain = sy.predict(p, KEY, 1.0, posterior=posterior)
    np.testing.assert_array_equal(sy.predict(sy.temper(p, 0.1), KEY, 5.0, posterior=posterior)["y"], plain["y"])


def test_models_of_numpyro_go_on_with_what_was_drawn(posterior: sy.Evaluation) -> None:
    def p(x: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 3):
            y = numpyro.sample("y", dist.Normal(slope, SHARP), obs=x)
        numpyro.sample("sum", dist.Normal(y.sum(), SHARP), obs=0.0)
        numpyro.sample("free", dist.Normal(2.0 * slope, SHARP))

    with jax.numpy_rank_promotion("allow"):
        new = sy.predict(sy.from_numpyro(p), KEY, jnp.zeros(3), posterior=posterior)
    slope = np.asarray(posterior.trace["slope"])
    np.testing.assert_allclose(new["y"], np.stack([slope] * 3, axis=1), atol=1e-3)
    np.testing.assert_allclose(new["sum"], 3 * slope, atol=1e-3)
    np.testing.assert_allclose(new["free"], 2 * slope, atol=1e-3)


@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be_right_is_refused(posterior: sy.Evaluation) -> None:
    def stranger(s: sy.State) -> None:
        s.observe("y", dist.Normal(s.sample("intercept", dist.Normal(0.0, 1.0)), 1.0), 0.0)

    def undrawn(s: sy.State) -> None:
        s.sample("slope", dist.Normal(0.0, 1.0))
        s.observe("y", dist.ImproperUniform(dist.constraints.real, (), ()), 0.0)

    def odd(s: sy.State) -> None:
        s.sample("slope", dist.Normal(0.0, 1.0))
        s.observe("y", dist.Normal(jnp.zeros(3), 1.0), jnp.zeros(4))

    with pytest.raises(sy.AddressError, match="'slope'.*'intercept'.*none in common"):
        sy.predict(stranger, KEY, posterior=posterior)
    with pytest.raises(sy.ArgumentError, match="observed at 'y'.*ImproperUniform.*cannot be predicted"):
        sy.predict(undrawn, KEY, posterior=posterior)
    with pytest.raises(sy.AddressError, match="observed at 'y' has shape"):
        sy.predict(odd, KEY, posterior=posterior)
    with pytest.raises(sy.AddressError, match="nothing was drawn at 'slope'"):
        sy.predict(line, KEY, 1.0, 0.0, posterior=posterior, only=["slope"])
    with pytest.raises(sy.ArgumentError, match="one population"):
        sy.predict(line, KEY, 1.0, 0.0, posterior=posterior.trace)
    with pytest.raises(sy.ArgumentError, match="engine is"):
        sy.predict(line, KEY, 1.0, 0.0, posterior=posterior, engine="other")


def test_deterministic_sites_of_numpyro_are_predicted(posterior: sy.Evaluation) -> None:
    """Those of variables have the particles' values; those of data, the new data. None of them has a density."""

    def p(x: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        numpyro.deterministic("twice", {"a": 2.0 * slope, "b": 1})
        y = numpyro.sample("y", dist.Normal(slope, SHARP), obs=x)
        numpyro.deterministic("of data", y + 1.0)
        scan(lambda c, x: (c, numpyro.deterministic("each", x * slope)), 0.0, jnp.arange(3.0))

    model = sy.from_numpyro(p)

    def masked(s: sy.State, x: Any) -> None:
        s.sample("slope2", dist.Normal(0.0, 1.0))
        with s.when(x > 0):
            model(s, x)

    new = sy.predict(model, KEY, 0.7, posterior=posterior)
    slope = np.asarray(posterior.trace["slope"])
    np.testing.assert_allclose(new["twice"]["a"], 2 * slope, rtol=1e-6)
    assert np.all(np.asarray(new["twice"]["b"]) == 1)
    np.testing.assert_array_equal(new["of data"], new["y"] + 1.0)
    np.testing.assert_allclose(new["each"], slope[:, None] * np.arange(3.0), rtol=1e-6)
    assert not {"twice", "of data", "each"} & {*sy.addresses(model, 0.7).log_density}
    for flag in (1.0, -1.0):
        found = sy.predict(masked, KEY, flag, posterior=posterior)
        assert bool(np.all(found.present("twice"))) == (flag > 0)
    # A kernel of an extend may have them, because they are no observations; what it computes is not the target's.
    q = sy.extend(lambda s: s.sample("v", dist.Normal(0.0, 1.0)), sy.from_numpyro(kernel))
    out = sy.evaluate(q, KEY, particles=3)
    assert list(sy.predict(q, KEY, posterior=out)) == []


def kernel(v: Any) -> None:
    u = numpyro.sample("u", dist.Normal(v, 1.0))
    numpyro.deterministic("half", u / 2)
