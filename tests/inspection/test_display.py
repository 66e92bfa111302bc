"""Evaluations in print: 80 columns, scans step by step, and what went wrong under jit."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.inspection.display import number, sparkline
from steelyard.inspection.levels import rows
from steelyard.output import encodable

KEY = jax.random.key(0)
LONG = "a_model_with_a_name_that_somebody_took_great_care_to_make_as_long_as_it_could_possibly_be"


def evaluation(ess: Any, **numbers: Any) -> sy.Evaluation:
    """Four particles, one level, whose numbers are known."""
    out = sy.evaluate(lambda s: s.factor("f", 0.5), KEY, particles=4)
    known = {"log_z_increment": 0.25, "max_weight": 0.5, "ancestors": 4} | numbers
    known = {name: np.broadcast_to(x, np.shape(ess)) for name, x in known.items()}
    level = sy.LevelSummary("resample", ess=np.asarray(ess), **known)
    return replace(out, record=replace(out.record, levels=(level,)))


def test_of_a_scan_it_shows_the_sum_the_worst_and_a_sparkline() -> None:
    out = evaluation(
        [4.0, 1.0, 3.0], log_z_increment=[0.5, -2.0, 0.25], max_weight=[0.3, 0.9, 0.4], ancestors=[4, 2, 3]
    )
    lines = repr(out).splitlines()
    assert lines[3].split() == ["resample", "x", "3", "-1.25", "1", "0.9", "2"]
    assert lines[5].split() == ["resample", "x", "3", "█▃▇", "1", "2", "of", "3"]
    assert encodable(lines[5], "ascii").split()[3] == "#-%"


def test_of_scans_in_scans_it_counts_both() -> None:
    (row,) = rows(evaluation([[4.0, 3.0, 2.0], [4.0, 1.0, 3.0]]))
    assert row.label == "resample x 2 x 3"
    assert row.numbers["log Z increment"] == 1.5
    assert row.steps is not None and row.steps.where == "2, 2 of 2, 3"


def test_of_a_batch_it_shows_the_mean_and_of_its_scans_the_worst() -> None:
    # As many runs as steps as particles: nothing is read off a size.
    ess = np.full((4, 4), 4.0)
    ess[2, 1] = 1.5
    out = replace(evaluation(ess, log_z_increment=np.arange(4.0)[:, None]), log_weight=jnp.zeros((4, 4)))
    (row,) = rows(out)
    assert row.label == "resample x 4"
    assert row.numbers["log Z increment"] == 4 * 1.5
    assert row.numbers["ESS"] == 1.5
    assert row.steps is not None and (row.steps.smallest, row.steps.where) == (1.5, "2 of 4")
    single = replace(evaluation(ess[0]), log_weight=jnp.zeros((4, 4)))
    assert rows(single)[0].steps is None


def test_an_adaptive_schedule_shows_the_steps_that_there_were() -> None:
    out = evaluation([4.0, 3.0, np.nan, np.nan], log_z_increment=[1.0, 2.0, np.nan, np.nan], used=np.arange(4) < 2)
    (row,) = rows(out)
    assert (row.label, row.numbers["log Z increment"], row.numbers["ESS"]) == ("resample x 2", 3.0, 3.0)

    used = np.arange(4) < np.array([[2], [3]])
    batch = evaluation([[4.0, 3.0, 0.0, 0.0], [4.0, 2.0, 3.0, 0.0]], used=used)
    (row,) = rows(replace(batch, log_weight=jnp.zeros((2, 4))))
    assert (row.label, row.numbers["ESS"], row.numbers["log Z increment"]) == ("resample x 3", 2.0, 0.625)
    assert row.steps is not None
    np.testing.assert_array_equal(row.steps.ess, [4.0, 2.0, 3.0])


@pytest.mark.parametrize("steps", [1, 3, 500])
def test_it_fits_80_columns(steps: int) -> None:
    out = evaluation(np.full(steps, 3.0), log_z_increment=-123456.7, acceptance=0.123456, jump=1.23456e-12)
    (level,) = out.levels
    (single,) = evaluation(3.0, acceptance=0.5, jump=1.0).levels
    out = replace(
        out, record=replace(out.record, levels=(replace(level, label=f"propose({LONG})"), replace(single, label=LONG)))
    )
    out = replace(out, trace=replace(out.trace, values_at={f"{LONG}{i}": jnp.zeros((4, 2)) for i in range(3)}))
    printed = repr(out)
    assert max(map(len, printed.splitlines())) <= 80
    for text in (LONG, number(-123456.7 * steps), "0.1235", "1.235e-12"):
        assert text in printed.replace("\n", "").replace(" ", "") or text in printed


def test_a_sparkline_of_many_steps_shows_the_smallest_of_each_few() -> None:
    values = np.full(1000, 100.0)
    values[501] = 0.0
    line = sparkline(values, 100.0, 20)
    assert len(line) == 20 and line.count("▁") == 1 and line.index("▁") == 10
    assert sparkline(np.array([np.nan, 100.0, 1e9, -1.0]), 100.0) == "?██▁"


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.sample("other", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, jnp.where(z > 1, jnp.nan, 1.0), validate_args=False), x)
    return z


def test_a_nan_under_jit_is_explained_afterwards() -> None:
    q = sy.propose(model, sy.propose(model, model))
    out = jax.jit(lambda x: sy.evaluate(q, KEY, x, particles=50))(0.3)
    bad = int((np.asarray(out.trace["z"]) > 1).sum())
    assert 0 < bad < 50
    printed = " ".join(repr(out).split())
    assert f"No result: {bad} of 50 particles have weight NaN, from propose(model) on." in printed
    assert f"The density at 'x' is NaN in {bad} of 50 particles." in printed


def test_a_nan_in_a_scan_is_explained_with_its_step() -> None:
    def first(s: sy.State) -> Any:
        s.factor("y", 0.0)
        return s.sample("z", dist.Normal(0.0, 1.0))

    def step(q: Any, y: Any) -> Any:
        def transition(s: sy.State, z: Any) -> Any:
            z = s.sample("z", dist.Normal(0.9 * z, 1.0))
            s.factor("y", jnp.where(z > 0, y, 0.0))
            return z

        return sy.resample(sy.move(transition, q))

    def run(ys: Any) -> sy.Evaluation:
        return sy.evaluate(sy.scan(step, first, ys, keep=["z"]), KEY, particles=20)

    ys = jnp.array([0.1, 0.2, jnp.nan, 0.3, 0.4])
    printed = " ".join(repr(jax.jit(run)(ys)).split())
    assert "every particle has weight NaN, from resample of step 3 of 5 on." in printed
    assert "Look at what this step is given." in printed
    with pytest.raises(sy.WeightError, match="from resample of step 3 of 5 on"):
        run(ys)
    assert "No result" not in repr(jax.jit(run)(jnp.zeros(5)))


def test_a_variable_that_is_absent_is_not_to_blame() -> None:
    def sometimes(s: sy.State) -> None:
        flag = s.sample("flag", dist.Bernoulli(0.5))
        with s.when(flag == 1):
            s.factor("f", jnp.nan)
        with s.when(flag == 0):
            s.factor("g", jnp.inf)

    out = jax.jit(lambda: sy.evaluate(sometimes, KEY, particles=30))()
    count = int(np.asarray(out.trace["flag"]).sum())
    printed = " ".join(repr(out).split())
    assert f"{count} of 30 particles have weight NaN. The density at 'f' is NaN in {count} of 30 particles." in printed
    assert "'g'" not in printed


@pytest.mark.parametrize(("factor", "name"), [(-jnp.inf, "zero"), (jnp.inf, "infinite")])
def test_weights_that_are_zero_or_infinite_are_explained_too(factor: float, name: str) -> None:
    out = jax.jit(lambda: sy.evaluate(lambda s: s.factor("never", factor), KEY, particles=3))()
    printed = " ".join(repr(out).split())
    assert f"No result: every particle has weight {name}. The density at 'never' is {name} in 3 of 3" in printed


def test_a_nan_that_only_a_proposal_has_is_not_blamed_on_the_target() -> None:
    def guide(s: sy.State, x: Any) -> Any:
        s.factor("slip", x)
        return s.sample("z", dist.Normal(0.0, 1.0))

    def target(s: sy.State, x: Any) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0))

    out = jax.jit(lambda x: sy.evaluate(sy.propose(target, guide), KEY, x, particles=3))(jnp.nan)
    assert "it was in a proposal. Without jit, evaluate looks for it." in " ".join(repr(out).split())
