"""Particles for ArviZ and pandas: the same numbers, in their form."""

import builtins
from dataclasses import replace
from functools import partial
from typing import Any

import arviz as az
import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import steelyard as sy
from steelyard.engines.degenerate import where_it_began
from steelyard.inspection.levels import rows
from steelyard.interop.arviz_groups import groups, joined

KEY = jax.random.key(3)
GROUPS = ("posterior", "log_likelihood", "sample_stats", "observed_data")
DATA = jnp.array([1.3, -0.4, 2.2, 0.1])


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    m = s.sample("m", dist.Normal(jnp.zeros((2, 3)), 2.0))
    k = s.sample("k", dist.Poisson(3.0))
    with s.when(z > 0):
        s.sample("u", dist.Bernoulli(0.5))
        s.observe("y", dist.Normal(z, 2.0), 0.7)
    s.observe("x", dist.Normal(z + 0 * (m.sum() + k), 0.5), x)
    return x


@pytest.fixture(scope="module")
def out() -> sy.Evaluation:
    return sy.evaluate(sy.propose(model, sy.propose(model, model)), KEY, DATA, particles=11, pointwise=True)


def test_the_table_has_the_particles_as_they_are(out: sy.Evaluation) -> None:
    table = out.to_dataframe()
    components = [f"m[{i}, {j}]" for i in range(2) for j in range(3)]
    assert list(table.columns) == ["k", *components, "u", "z", "log_weight", "weight"]
    assert isinstance(table, pd.DataFrame) and len(table) == 11
    np.testing.assert_array_equal(table["m[1, 0]"], np.asarray(out.trace["m"])[:, 1, 0])
    np.testing.assert_array_equal(table["k"], out.trace["k"])
    assert np.issubdtype(table["k"].dtype, np.integer)
    absent = np.asarray(out.trace["z"]) <= 0
    assert 0 < absent.sum() < 11
    np.testing.assert_array_equal(table["u"], np.where(absent, np.nan, out.trace["u"]))
    np.testing.assert_array_equal(table["log_weight"], out.log_weight)
    weight = np.exp(np.asarray(out.log_weight, float) - np.max(np.asarray(out.log_weight)))
    np.testing.assert_allclose(table["weight"], weight / weight.sum(), rtol=1e-5, atol=1e-7)


def test_weighted_particles(out: sy.Evaluation) -> None:
    data = out.to_arviz()
    assert isinstance(data, az.InferenceData) and data.groups() == [*GROUPS]
    assert data.posterior["m"].dims == ("chain", "draw", "m_dim_0", "m_dim_1")
    for a in ("z", "m", "k"):
        np.testing.assert_array_equal(data.posterior[a], np.asarray(out.trace[a])[None])
    stats, absent = data.sample_stats, np.asarray(out.trace["z"]) <= 0
    np.testing.assert_array_equal(np.isnan(data.posterior["u"]), absent[None])
    np.testing.assert_array_equal(np.isnan(data.log_likelihood["y"]), absent[None])
    np.testing.assert_array_equal(stats["log_weight"], np.asarray(out.log_weight)[None])
    assert float(stats["log_evidence"]) == float(out.log_z)
    assert list(stats["level"].values) == [level.label for level in out.levels] and len(out.levels) == 2
    for name in ("log_z_increment", "ess", "max_weight"):
        np.testing.assert_array_equal(stats[name], [getattr(level, name) for level in out.levels])
    np.testing.assert_allclose(data.log_likelihood["x"].sum("x_dim_0")[0], out.log_density["x"], rtol=1e-5)


def test_what_all_particles_observed_is_known(out: sy.Evaluation) -> None:
    data = out.to_arviz(KEY, 7).observed_data
    np.testing.assert_array_equal(data["x"], DATA)
    # Only some particles have it, and these agree.
    assert float(data["y"]) == np.float32(0.7) and data["x"].dims == out.to_arviz().log_likelihood["x"].dims[2:]
    assert "observed_data" not in sy.evaluate(model, KEY, DATA, particles=3).to_arviz().groups()

    def p(s: sy.State, x: Any) -> None:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("own", dist.Normal(0.0, 1.0), 2.0 + z)
        with s.when(False):
            s.observe("never", dist.Normal(0.0, 1.0), 1.0)
        with s.when(z > 100):
            s.observe("nobody", dist.Normal(0.0, 1.0), 1.0)
        s.observe("missing", dist.Normal(0.0, 1.0, validate_args=False).mask(jnp.array([True, False])), x)
        s.observe("k", dist.Poisson(3.0), jnp.array(2))

    x = jnp.array([1.0, 7.0])
    q = sy.rename(sy.resample(p), {"k": "count"})
    for engine in ("vectorized", "universal"):
        found = sy.evaluate(q, KEY, x, particles=4, pointwise=True, engine=engine).to_arviz().observed_data
        assert set(found.data_vars) == {"missing", "count"}
        np.testing.assert_array_equal(found["missing"], x)
        assert np.issubdtype(found["count"].dtype, np.integer) and int(found["count"]) == 2
    # Of one particle, its own value is that of all.
    assert "own" in sy.evaluate(p, KEY, x, particles=1, pointwise=True).to_arviz().observed_data


def test_a_tree_has_the_same_groups(out: sy.Evaluation) -> None:
    """What ArviZ 1 takes."""
    tree = joined(groups(out, KEY, 7), as_tree=True)
    assert isinstance(tree, xr.DataTree) and set(tree.children) == {*GROUPS}
    data = out.to_arviz(KEY, 7)
    for name in tree.children:
        xr.testing.assert_identical(tree[name].to_dataset(), data[name])


def test_draws_are_those_of_resample(out: sy.Evaluation) -> None:
    data, drawn = out.to_arviz(KEY, 29), out.resample(KEY, 29)
    np.testing.assert_array_equal(data.posterior["z"], np.asarray(drawn.trace["z"])[None])
    np.testing.assert_array_equal(data.log_likelihood["x"], np.asarray(drawn.pointwise["x"])[None])
    assert "log_weight" not in data.sample_stats and float(data.sample_stats["log_evidence"]) == float(out.log_z)
    assert out.to_arviz(KEY).posterior.sizes["draw"] == 11


def test_arviz_works_as_it_stands() -> None:
    """A conjugate normal: the exact posterior, and the exact leave-one-out densities."""

    def p(s: sy.State, x: Any) -> Any:
        v = s.sample("v", dist.Normal(jnp.array([0.0, 3.0]), 1.0))
        s.observe("x", dist.Normal(v[0], 1.5), x)
        return x

    out = sy.evaluate(p, KEY, DATA, particles=20_000, pointwise=True)
    data = out.to_arviz(jax.random.key(1), 4_000)
    x = np.asarray(DATA, float)
    precision = 1 + len(x) / 1.5**2
    summary = az.summary(data, round_to=6)
    assert list(summary.index) == ["v[0]", "v[1]"]
    np.testing.assert_allclose(summary["mean"], [x.sum() / 1.5**2 / precision, 3.0], atol=0.05)
    np.testing.assert_allclose(summary["sd"], [precision**-0.5, 1.0], rtol=0.05)
    exact = 0.0
    for i in range(len(x)):
        rest = np.delete(x, i)
        other = 1 + len(rest) / 1.5**2
        exact += dist.Normal(rest.sum() / 1.5**2 / other, np.sqrt(1 / other + 1.5**2)).log_prob(x[i])
    np.testing.assert_allclose(az.loo(data).elpd_loo, exact, atol=0.05)
    assert az.plot_pair(data).get_xlabel().startswith("v")


def test_steps_of_loops_are_levels_one_by_one() -> None:
    def start(s: sy.State, x: Any) -> Any:
        s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 0.5), x)
        return x

    def kernel(s: sy.State, x: Any) -> Any:
        s.sample("z", dist.Normal(0.3, 1.1))
        return x

    def step(q: Any, beta: Any) -> Any:
        return sy.propose(sy.extend(sy.temper(start, beta), sy.prev(kernel)), sy.move(kernel, q))

    q = sy.resample(sy.scan(step, start, jnp.array([0.5, 0.8, 1.0])))
    out = sy.evaluate(q, KEY, DATA, particles=5)
    stats = out.to_arviz().sample_stats
    label = out.levels[0].label
    assert list(stats["level"].values) == [f"{label} 1", f"{label} 2", f"{label} 3", "resample"]
    np.testing.assert_array_equal(stats["ess"][:3], out.levels[0].ess)


def test_particles_of_the_universal_engine() -> None:
    def p(s: sy.State) -> None:
        k = int(s.sample("k", dist.Bernoulli(0.5)))
        if k:
            s.sample("v", dist.Normal(jnp.arange(2.0), 1.0))
        s.sample("ragged", dist.Normal(jnp.zeros(k + 1), 1.0))

    out = sy.evaluate(p, KEY, particles=6, engine="universal")
    has = np.asarray(out.trace["k"]) == 1
    assert 0 < has.sum() < 6
    table = out.to_dataframe()
    np.testing.assert_array_equal(np.isnan(table["v[1]"]), ~has)
    np.testing.assert_array_equal(table["v[1]"][has], [v[1] for v in np.asarray(out.trace["v"])[has]])
    assert [len(x) for x in table["ragged"]] == [*(1 + has)]
    with pytest.raises(sy.ArgumentError, match="'ragged' are no numbers, or their shapes differ"):
        out.to_arviz()


def test_programs_without_variables() -> None:
    def p(s: sy.State) -> None:
        s.factor("f", 0.3)

    out = sy.evaluate(p, KEY, particles=1)
    assert list(out.to_dataframe().columns) == ["log_weight", "weight"] and out.to_dataframe()["weight"][0] == 1
    np.testing.assert_allclose(out.to_arviz(KEY).sample_stats["log_evidence"], 0.3, rtol=1e-6)


def test_what_cannot_be_right_is_refused(out: sy.Evaluation) -> None:
    def named(name: str) -> sy.Evaluation:
        return sy.evaluate(lambda s: s.sample(name, dist.Normal(0.0, 1.0)), KEY, particles=2)

    with pytest.raises(sy.ArgumentError, match="Give a key"):
        out.to_arviz(draws=3)
    for export in ("to_arviz", "to_dataframe"):
        with pytest.raises(sy.ArgumentError, match="not known yet"):
            jax.jit(lambda e: getattr(e, export)())(out)  # noqa: B023
        with pytest.raises(sy.ArgumentError, match="several populations"):
            getattr(jax.tree.map(lambda x: jnp.stack([x, x]), out), export)()
    with pytest.raises(sy.ArgumentError, match="the name of an axis"):
        named("draw").to_arviz()
    with pytest.raises(sy.ArgumentError, match="two columns would have the name 'weight'"):
        named("weight").to_dataframe()


def test_who_lacks_a_library_is_told_how_to_get_it(out: sy.Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **options: Any) -> Any:
        if name in ("arviz", "pandas"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    for export in (out.to_arviz, out.to_dataframe):
        with pytest.raises(sy.ArgumentError, match=r"pip install 'steelyard\[arviz\]'"):
            export()


def test_only_the_steps_of_an_adaptive_schedule_are_trimmed() -> None:
    """Under jit there is room for more of them. Here another scan is just as long as that room."""
    walk = partial(blackjax.normal_random_walk, sigma=0.3 * jnp.eye(1))

    def p(s: sy.State) -> Any:
        s.observe("x", dist.Normal(s.sample("z", dist.Normal(0.0, 1.0)), 0.5), 1.2)

    found = sy.algorithms.tempered(p, walk, sy.adaptive(ess=0.6, most=6))
    q = sy.scan(lambda q, x: sy.resample(q), found, jnp.arange(6.0))
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=50))(KEY)
    count = int(out.found.count)
    assert 1 < count < 6 and out.found.done
    expected = [count] * 3 + [6]
    assert [row.steps and len(row.steps.ess) for row in rows(out)] == expected
    labels = out.to_arviz().sample_stats["level"].values
    assert list(labels) == [
        f"{level.label} {i + 1}" for level, n in zip(out.levels, expected, strict=True) for i in range(n)
    ]
    assert np.isfinite(out.to_arviz().sample_stats["ess"]).all()
    # What was never run is not to blame for what went wrong later.
    spoiled = replace(out.levels[-1], log_z_increment=jnp.full(6, jnp.nan))
    spoiled = replace(out, record=replace(out.record, levels=(*out.levels[:-1], spoiled)))
    assert str(where_it_began(spoiled)) == ", from resample of step 1 of 6 on"
