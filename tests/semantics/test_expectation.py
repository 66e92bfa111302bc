"""Expectations of variables that some particles lack."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

KEY = jax.random.key(0)


def model(s: sy.State) -> Any:
    outlier = s.sample("outlier", dist.Bernoulli(0.4))
    with s.when(outlier == 1):
        shift = s.sample("shift", dist.Normal(3.0, 1.0))
        s.factor("score", 0.5 * shift)
    with s.when(outlier == 2):
        s.sample("never", dist.Normal(0.0, 1.0))


@pytest.fixture(params=("vectorized", "universal"))
def out(request: pytest.FixtureRequest) -> sy.Evaluation:
    return sy.evaluate(model, KEY, particles=300, engine=request.param)


def exact(out: sy.Evaluation, over: Any) -> float:
    held = np.asarray(out.trace["outlier"]) == 1
    w = np.exp(np.asarray(out.log_weight, float))
    shift = np.array([float(x) if h else 0.0 for x, h in zip(out.trace["shift"], held, strict=True)])
    return float((w * held * shift).sum() / (w * (held if over == "present" else 1)).sum())


def test_a_variable_that_some_lack_is_an_error_with_a_remedy(out: sy.Evaluation) -> None:
    with pytest.raises(sy.AddressError, match=r"t.get\('shift', 0.0\).*given=\['shift'\]"):
        out.expect(lambda t: t["shift"])


def test_going_through_all_variables(out: sy.Evaluation) -> None:
    """A particle that runs on its own has its own variables; of all at once it is not known who has what."""
    questions: Any = (lambda t: sum(t.values()), lambda t: sum(v for _, v in t.items()), lambda t: float("shift" in t))
    if isinstance(out.log_weight, np.ndarray):
        total, again, share = map(out.expect, questions)
        np.testing.assert_allclose([total, again], exact(out, "all") + out.expect(lambda t: t["outlier"]), rtol=1e-5)
        np.testing.assert_allclose(share, out.expect(lambda t: t["outlier"]), rtol=1e-5)
        return
    for h in questions:
        with pytest.raises(sy.AddressError, match="shift|never"):
            out.expect(h)


def test_given_that_it_is_there(out: sy.Evaluation) -> None:
    for given in ("shift", ["shift"], ["shift", "outlier"]):
        np.testing.assert_allclose(out.expect(lambda t: t["shift"], given=given), exact(out, "present"), rtol=1e-5)
    np.testing.assert_allclose(out.expect(lambda t: t["outlier"], given="shift"), 1.0, rtol=1e-6)


def test_with_a_default(out: sy.Evaluation) -> None:
    np.testing.assert_allclose(out.expect(lambda t: t.get("shift", 0.0)), exact(out, "all"), rtol=1e-5)
    np.testing.assert_allclose(out.expect(lambda t: t.get("shift", 7.0) - t.get("shift", 5.0)) / 2, 1 - out.expect(lambda t: t["outlier"]), rtol=1e-5)  # fmt: skip


def test_the_other_variables_are_read_as_ever(out: sy.Evaluation) -> None:
    w = np.exp(np.asarray(out.log_weight, float))
    held = np.asarray(out.trace["outlier"]) == 1
    np.testing.assert_allclose(out.expect(lambda t: t["outlier"]), (w * held).sum() / w.sum(), rtol=1e-5)
    with pytest.raises(KeyError, match="nowhere"):
        out.expect(lambda t: t["nowhere"])


def test_given_a_variable_that_there_is_not(out: sy.Evaluation) -> None:
    with pytest.raises(sy.AddressError, match="no particle has 'nowhere'"):
        out.expect(lambda t: 0.0, given="nowhere")
    if isinstance(out.log_weight, jax.Array):
        assert np.isnan(out.expect(lambda t: t["never"], given="never"))


def test_what_is_not_known_yet_may_be_missing() -> None:
    def mean(h: Any, given: Any = ()) -> Any:
        return jax.jit(lambda key: sy.evaluate(model, key, particles=300).expect(h, given=given))(KEY)

    with pytest.raises(sy.AddressError, match="not every particle has 'shift'"):
        mean(lambda t: t["shift"])
    eager = sy.evaluate(model, KEY, particles=300)
    np.testing.assert_allclose(mean(lambda t: t["shift"], "shift"), exact(eager, "present"), rtol=1e-5)


def test_a_variable_that_all_happen_to_have_can_be_read() -> None:
    def sometimes(s: sy.State) -> Any:
        with s.when(jnp.asarray(True)):
            s.sample("z", dist.Normal(2.0, 1e-3))

    for engine in ("vectorized", "universal"):
        out = sy.evaluate(sometimes, KEY, particles=4, engine=engine)
        np.testing.assert_allclose(out.expect(lambda t: t["z"]), 2.0, atol=0.01)


def test_a_batch_of_evaluations() -> None:
    batch = jax.vmap(lambda key: sy.evaluate(model, key, particles=50))(jax.random.split(KEY, 3))
    assert batch.expect(lambda t: t["shift"], given="shift").shape == (3,)
