"""What a filter knew at each step: with the weights of that step, thresholds included."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

KEY = jax.random.key(3)
YS = jnp.array([0.3, 3.1, -0.5, 0.2])
PROBABILITIES = [0.0, 0.25, 0.5, 0.9, 1.0]


def first(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(0.4, 1.0))
    k = s.sample("k", dist.Bernoulli(0.3))
    s.observe("y", dist.Normal(z, 2.0), 0.7)
    return z, k


def transition(y: Any) -> Any:
    def step(s: sy.State, value: Any) -> Any:
        z, k = value
        z = s.sample("z", dist.Normal(0.9 * z + 0.1 * k, 1.0))
        k = s.sample("k", dist.Bernoulli(0.6))
        s.observe("y", dist.Normal(z + k, 0.8), y)
        return z, k

    return step


def step(q: Any, y: Any) -> Any:
    return sy.move(transition(y), sy.resample(q, threshold=0.5))


def kept(ys: Any, keep: Any = ("z", "k")) -> Any:
    return sy.scan(step, first, ys, keep=keep)


def h(t: Any) -> Any:
    return {"both": jnp.stack([t["z"], t["z"] ** 2]), "k": t["k"]}


@pytest.fixture(scope="module")
def runs() -> dict[str, sy.Evaluation]:
    return {name: sy.evaluate(kept(YS), KEY, particles=12, engine=name) for name in ("vectorized", "universal")}


@pytest.fixture(scope="module")
def prefixes() -> list[sy.Evaluation]:
    """The same filter, stopped after each step: the same key gives the same particles."""
    return [sy.evaluate(kept(YS[:t]), KEY, particles=12, engine="universal") for t in range(len(YS) + 1)]


def test_the_threshold_is_passed_at_some_steps_only(prefixes: list[sy.Evaluation]) -> None:
    share = [float(e.ess) / 12 for e in prefixes[:-1]]
    assert min(share) < 0.5 < max(share)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_expectations_are_those_of_the_filter_stopped_there(engine: str, runs: Any, prefixes: Any) -> None:
    found = runs[engine].filtered(h)
    expected = [e.expect(h) for e in prefixes]
    for name in ("both", "k"):
        np.testing.assert_allclose(found[name], [e[name] for e in expected], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_quantiles_by_their_definition(engine: str, runs: Any, prefixes: Any) -> None:
    found = runs[engine].filtered_quantiles(h, PROBABILITIES)
    assert found["both"].shape == (5, 5, 2)
    for t, e in enumerate(prefixes):
        w = np.asarray(e.normalized_weights, float)
        columns = {"k": e.trace["k"], 0: e.trace["z"], 1: np.asarray(e.trace["z"]) ** 2}
        for name, column in columns.items():
            ours = found["k"][:, t] if name == "k" else found["both"][:, t, name]
            values = np.sort(np.asarray(column, float))
            reached = np.array([w[np.asarray(column) <= v].sum() for v in values])
            by_hand = [values[np.flatnonzero(reached >= p - 1e-9)[0]] for p in PROBABILITIES[:-1]]
            by_hand.append(np.asarray(column)[w > 0].max())
            np.testing.assert_allclose(ours, by_hand, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_predictive_densities_are_differences_of_log_z(engine: str, runs: Any, prefixes: Any) -> None:
    found = np.asarray(runs[engine].log_predictive())
    log_z = np.array([float(e.log_z) for e in prefixes])
    np.testing.assert_allclose(found, np.diff(log_z, prepend=0.0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.sum(), runs[engine].log_z, rtol=1e-5)


def test_predictive_densities_do_not_lose_digits_to_what_is_shared() -> None:
    def start(s: sy.State) -> Any:
        s.factor("y", 2.0**20)
        return s.sample("z", dist.Normal(0.0, 1.0))

    def walk(s: sy.State, z: Any) -> Any:
        s.factor("y", 0.125)
        return s.sample("z", dist.Normal(z, 1.0))

    q = sy.scan(lambda q, x: sy.move(walk, sy.resample(q)), start, None, length=2, keep=[])
    out = sy.evaluate(q, KEY, particles=3, engine="universal")
    np.testing.assert_array_equal(out.log_predictive(), [2.0**20, 0.125, 0.125])


def test_under_jit_and_in_batches() -> None:
    def mean(t: Any) -> Any:
        return t["z"]

    def run(key: Any) -> Any:
        out = sy.evaluate(kept(YS[:2], ["z"]), key, particles=5)
        return out, (out.filtered(mean), out.filtered_quantiles(mean, [0.2, 0.7]), out.log_predictive())

    out, (means, levels, increments) = jax.jit(jax.vmap(run, out_axes=(0, (0, 1, 0))))(jax.random.split(KEY, 3))
    assert levels.shape == (2, 3, 3)
    np.testing.assert_allclose(out.filtered(mean), means, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out.filtered_quantiles(mean, [0.2, 0.7]), levels, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out.log_predictive(), increments, rtol=1e-5, atol=1e-5)


def test_scans_that_go_on_count_as_one(runs: Any) -> None:
    both = sy.scan(step, kept(YS[:1]), YS[1:], keep=["z", "k"])
    out = sy.evaluate(both, KEY, particles=12, engine="universal")
    np.testing.assert_allclose(out.filtered(h)["both"], runs["universal"].filtered(h)["both"], rtol=1e-6)
    # What happens to the particles afterwards changes nothing of what was known then.
    later = runs["universal"].resample(jax.random.key(9), 7)
    np.testing.assert_array_equal(later.filtered(h)["k"], runs["universal"].filtered(h)["k"])


def test_what_is_not_known_is_refused(runs: Any) -> None:
    def weighed(s: sy.State) -> None:
        s.factor("w", s.sample("a", dist.Normal(0.0, 1.0)))

    nothing = sy.evaluate(weighed, KEY, particles=3, engine="universal")
    with pytest.raises(sy.ArgumentError, match="Name the variables to keep"):
        nothing.filtered(h)
    second = sy.compose(sy.scan(step, lambda s, _: first(s), YS[:1], keep=["z"]), weighed)
    out = sy.evaluate(second, KEY, particles=3, engine="universal")
    with pytest.raises(sy.ArgumentError, match="after another program"):
        out.log_predictive()
    with pytest.raises(sy.ArgumentError, match="from 0 to 1"):
        runs["universal"].filtered_quantiles(h, [0.5, 1.5])
    with pytest.raises(sy.ArgumentError, match="from 0 to 1"):
        runs["universal"].filtered_quantiles(h, 0.5)


def test_a_program_before_the_scan_belongs_to_it() -> None:
    def weighed(s: sy.State) -> None:
        s.factor("w", 2.0)

    q = sy.scan(step, sy.compose(lambda s, _: first(s), weighed), YS[:1], keep=["z"])
    out = sy.evaluate(q, KEY, particles=3, engine="universal")
    np.testing.assert_allclose(out.log_predictive().sum(), out.log_z, rtol=1e-6)
