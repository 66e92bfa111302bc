"""Resampling within islands."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.types import Method
from tests.running import run, universal

METHODS = ["systematic", "stratified", "multinomial", "residual"]


def model(s: sy.State) -> None:
    z = s.sample("z", dist.Bernoulli(0.3))
    s.factor("y", jnp.where(z == 1, 1.5, -0.5))


@pytest.mark.parametrize("method", METHODS)
def test_properly_weighted(method: Method) -> None:
    sy.testing.assert_properly_weighted(sy.resample(model, method=method, islands=2), particles=4, engine="universal")


def test_properly_weighted_where_islands_may_come_together() -> None:
    q = sy.resample(model, islands=2, threshold=0.9)
    sy.testing.assert_properly_weighted(q, particles=4, engine="universal")


def test_properly_weighted_along_a_ring() -> None:
    q = sy.resample(model, islands=2, ring=0.5, threshold=0.9)
    sy.testing.assert_properly_weighted(q, particles=4, engine="universal")


def test_along_a_ring() -> None:
    def drawn(s: sy.State) -> None:
        s.factor("y", 3.0 * s.sample("z", dist.Normal(0.0, 1.0)))

    alone, linked = (run(sy.resample(drawn, islands=3, ring=ring), particles=12) for ring in (None, 0.3))
    from_where = [8, 9, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11]
    for ours, theirs in ((linked.ancestors, alone.ancestors), (linked.log_weight, alone.log_weight)):
        np.testing.assert_array_equal(ours, np.asarray(theirs)[from_where])
    np.testing.assert_array_equal(linked.trace["z"], np.asarray(alone.trace["z"])[from_where])
    other = universal(sy.resample(drawn, islands=3, ring=0.3), particles=12)
    np.testing.assert_array_equal(linked.ancestors, other.ancestors)
    assert int(linked.levels[-1].ancestors) == int(alone.levels[-1].ancestors)


def test_both_engines_are_properly_weighted() -> None:
    sy.testing.assert_properly_weighted(sy.resample(model, islands=2), particles=2)


@pytest.mark.parametrize("method", METHODS)
def test_islands_keep_to_themselves(method: Method) -> None:
    def drawn(s: sy.State) -> None:
        s.factor("y", 3.0 * s.sample("z", dist.Normal(0.0, 1.0)))

    q = sy.resample(drawn, method=method, islands=5)
    one, other = run(q, particles=40), universal(q, particles=40)
    np.testing.assert_array_equal(one.ancestors, other.ancestors)
    np.testing.assert_array_equal(np.asarray(one.ancestors) // 8, np.arange(40) // 8)
    before = np.asarray(run(drawn, particles=40).log_weight).reshape(5, 8)
    averages = np.log(np.mean(np.exp(before), axis=1))
    np.testing.assert_allclose(one.log_weight, np.repeat(averages, 8), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(one.log_z, np.log(np.mean(np.exp(before))), rtol=1e-5)
    # The estimate of Lee and Whiteley is for particles that may descend from any other.
    assert np.isnan(one.log_z_variance)


def test_together_where_islands_differ() -> None:
    def uneven(s: sy.State) -> None:
        s.factor("y", 3.0 * s.sample("z", dist.Normal(0.0, 1.0)))

    separate, together = (
        run(sy.resample(uneven, islands=4, threshold=threshold), particles=16) for threshold in (1e-6, 1.0)
    )
    np.testing.assert_array_equal(separate.ancestors, run(sy.resample(uneven, islands=4), particles=16).ancestors)
    assert len(set(np.asarray(together.log_weight).tolist())) == 1 < len(set(np.asarray(separate.log_weight).tolist()))
    assert (np.asarray(together.ancestors) // 4 != np.arange(16) // 4).any()


def test_wrong_islands() -> None:
    with pytest.raises(sy.ArgumentError, match="10 particles cannot be shared out evenly to 4 islands"):
        sy.evaluate(sy.resample(model, islands=4), jax.random.key(0), particles=10)
    with pytest.raises(sy.ArgumentError, match="a ring is one of islands, and there are none"):
        sy.resample(model, ring=0.5)
    with pytest.raises(sy.ArgumentError, match=r"ring is a share of the particles of an island, in \(0, 1\), got 1"):
        sy.resample(model, islands=2, ring=1.0)
    with pytest.raises(sy.ArgumentError, match="islands is a positive number"):
        sy.resample(model, islands=0)


def test_shown(capsys: pytest.CaptureFixture[str]) -> None:
    sy.show(sy.resample(model, islands=2, ring=0.25))
    assert "systematic in 2 islands, 0.25 of each to the next" in capsys.readouterr().out
