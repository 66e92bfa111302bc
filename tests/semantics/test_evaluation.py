"""What an evaluation tells: estimates, weights, levels, and the text that people read."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, run, universal

LOG_WEIGHTS = [0.5, -1.0, float("-inf"), 2.0]


def scored(s: sy.State, scores: jax.Array) -> dict[str, jax.Array]:
    """Particles 0, 1, 2, ... of known weights: `given` says which is which."""
    index = s.sample("index", dist.Categorical(jnp.ones(4) / 4))
    s.factor("score", scores[index] - jnp.log(0.25))
    return {"index": index, "twice": 2.0 * index}


def known(engine: str = "vectorized") -> sy.Evaluation:
    given = {"index": jnp.arange(4)}
    return sy.evaluate(scored, KEY, jnp.array(LOG_WEIGHTS), particles=4, given=given, engine=engine)  # pyright: ignore


W = np.exp(LOG_WEIGHTS)
ENGINES = pytest.mark.parametrize("engine", ["vectorized", "universal"])


@ENGINES
def test_estimates(engine: str) -> None:
    out = known(engine)
    np.testing.assert_allclose(out.log_weight, LOG_WEIGHTS, atol=1e-6)
    np.testing.assert_allclose(out.log_z, np.log(W.mean()), rtol=1e-5)
    np.testing.assert_allclose(out.ess, W.sum() ** 2 / (W**2).sum(), rtol=1e-5)
    np.testing.assert_allclose(out.normalized_weights, W / W.sum(), rtol=1e-5)
    assert out.particles == 4


@ENGINES
def test_expectations_of_trees(engine: str) -> None:
    found = known(engine).expect(lambda t: {"one": t["index"], "pair": (t["index"] ** 2, jnp.arange(3) * t["index"])})
    k = np.arange(4)
    first, second = (W * k).sum() / W.sum(), (W * k**2).sum() / W.sum()
    np.testing.assert_allclose(found["one"], first, rtol=1e-5)
    np.testing.assert_allclose(found["pair"][0], second, rtol=1e-5)
    np.testing.assert_allclose(found["pair"][1], np.arange(3) * first, rtol=1e-5)


@ENGINES
def test_a_particle_of_weight_zero_does_not_count_even_where_h_is_infinite(engine: str) -> None:
    out = known(engine)
    for bad in (jnp.inf, jnp.nan):
        found = out.expect(lambda t: jnp.where(t["index"] == 2, bad, 1.0 * t["index"]))  # noqa: B023
        np.testing.assert_allclose(found, (W[1] + 3 * W[3]) / W.sum(), rtol=1e-5)
    assert out.expect(lambda t: jnp.where(t["index"] == 3, jnp.inf, 1.0)) == np.inf


def test_expectations_see_which_variables_a_particle_has() -> None:
    def optional(s: sy.State) -> None:
        with s.when(s.sample("flag", dist.Bernoulli(0.5)) == 1):
            s.sample("z", dist.Normal(5.0, 0.1))

    share = np.mean(np.asarray(run(optional, particles=50).trace["flag"]))
    found = run(optional, particles=50).expect(lambda t: jnp.where(t.present("z"), 1.0, 0.0))
    np.testing.assert_allclose(found, share, rtol=1e-5)
    one_by_one = universal(optional, particles=50).expect(lambda t: 1.0 if "z" in t else 0.0)
    np.testing.assert_allclose(one_by_one, share, rtol=1e-5)


@ENGINES
@pytest.mark.parametrize("particles", [None, 1, 3, 50])
def test_resampling_an_evaluation(engine: str, particles: int | None) -> None:
    out = known(engine)
    again = out.resample(jax.random.key(1), particles)
    assert again.particles == (particles or 4)
    index = np.asarray(again.trace["index"])
    assert (index == again.ancestors).all()
    assert not (index == 2).any()
    assert (np.asarray(again.value["twice"]) == 2 * index).all()
    np.testing.assert_allclose(again.log_density["score"], np.array(LOG_WEIGHTS)[index] + np.log(4), rtol=1e-5)
    np.testing.assert_allclose(again.log_z, out.log_z, rtol=1e-5)
    if particles == 50:
        np.testing.assert_allclose(np.bincount(index, minlength=4) / 50, W / W.sum(), atol=1 / 50)


def test_resampling_an_evaluation_by_every_method() -> None:
    out = known()
    for method in ("systematic", "stratified", "multinomial", "residual"):
        index = np.asarray(out.resample(jax.random.key(2), 2000, method=method).trace["index"])
        np.testing.assert_allclose(np.bincount(index, minlength=4) / 2000, W / W.sum(), atol=0.05)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((jax.random.key(0), 0), "positive"),
        ((jax.random.key(0), 2.5), "positive"),
        ((jnp.zeros(4, jnp.uint32),), r"jax\.random\.key"),
    ],
    ids=["none", "half", "words that are no key"],
)
def test_resampling_an_evaluation_with_wrong_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(sy.ArgumentError, match=message):
        known().resample(*arguments)
    with pytest.raises(sy.ArgumentError, match="systematic, stratified, multinomial, residual"):
        known().resample(jax.random.key(0), method="lottery")  # pyright: ignore


def test_levels_tell_where_a_sampler_degenerates() -> None:
    def model(s: sy.State) -> None:
        s.sample("z", dist.Bernoulli(0.5))
        s.factor("f", 3.0)

    def guide(s: sy.State) -> None:
        s.sample("z", dist.Bernoulli(0.2))

    q = sy.resample(sy.propose(model, guide))
    w = np.exp(3.0) * np.where(universal(guide, particles=40).trace["z"] == 1, 0.5 / 0.2, 0.5 / 0.8)
    for out in (run(q, particles=40), universal(q, particles=40)):
        proposed, resampled = out.levels
        assert (proposed.label, resampled.label) == ("propose(model)", "resample")
        np.testing.assert_allclose(proposed.log_z_increment, np.log(w.mean()), rtol=1e-4)
        np.testing.assert_allclose(proposed.ess, w.sum() ** 2 / (w**2).sum(), rtol=1e-4)
        np.testing.assert_allclose(proposed.max_weight, w.max() / w.sum(), rtol=1e-4)
        assert proposed.ancestors == 40
        np.testing.assert_allclose(resampled.log_z_increment, 0.0, atol=1e-5)
        # What it found, since afterwards all weights are alike.
        np.testing.assert_allclose(resampled.ess, w.sum() ** 2 / (w**2).sum(), rtol=1e-4)
        np.testing.assert_allclose(resampled.max_weight, w.max() / w.sum(), rtol=1e-4)
        assert resampled.ancestors == len(np.unique(out.ancestors)) < 40
        np.testing.assert_allclose(out.log_z, np.log(w.mean()), rtol=1e-4)


def test_text_names_what_people_look_for() -> None:
    out = known().resample(jax.random.key(0), 3)
    assert repr(out) == "Evaluation of 3 particles: log Z 0.855, ESS 3\ntrace: index int32[3]"
    with_levels = repr(run(sy.resample(lambda s: s.factor("f", 0.5), threshold=0.5), particles=3))
    lines = with_levels.splitlines()
    assert lines[0] == "Evaluation of 3 particles: log Z 0.5, ESS 3"
    assert lines[1] == "trace: empty"
    assert lines[2].split("  ") != lines[3].split("  ")
    assert "distinct ancestors" in lines[2]
    assert lines[3].split() == ["resample", "0", "3", "0.3333", "3"]
    batch = jax.vmap(lambda key: sy.evaluate(lambda s: s.factor("f", 0.5), key, particles=3))(jax.random.split(KEY, 5))
    assert repr(batch).startswith("Evaluation of 3 particles: log Z 0.5 (mean of 5)")
    shown: list[str] = []
    jax.jit(lambda key: shown.append(repr(sy.evaluate(scored, key, jnp.zeros(4), particles=3))))(KEY)
    assert "log Z traced" in shown[0]


def test_a_batch_of_evaluations_has_the_batch_axis_first() -> None:
    scores = jnp.array([[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, -jnp.inf, 0.5]])
    given = {"index": jnp.arange(4)}
    batch = jax.vmap(lambda s: sy.evaluate(scored, KEY, s, particles=4, given=given))(scores)
    w = np.exp(np.asarray(scores))
    np.testing.assert_allclose(batch.log_z, np.log(w.mean(axis=1)), rtol=1e-5)
    np.testing.assert_allclose(batch.ess, w.sum(axis=1) ** 2 / (w**2).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(batch.normalized_weights, w / w.sum(axis=1)[:, None], rtol=1e-5)
    np.testing.assert_allclose(batch.expect(lambda t: t["index"]), (w @ np.arange(4)) / w.sum(axis=1), rtol=1e-5)
    assert batch.value["twice"].shape == (2, 4)
    assert batch.particles == 4
    with pytest.raises(sy.ArgumentError, match=r"jax\.vmap"):
        batch.resample(KEY)
