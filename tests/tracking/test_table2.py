"""The table: what is measured is right, and an interrupted table goes on where it stopped."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import steelyard as sy
from steelyard.experiments.tracking import cells, parameters, table
from steelyard.experiments.tracking.cells import Cell, held_out
from steelyard.experiments.tracking.evaluation import Explained, explained, reconstruction, tracked
from steelyard.experiments.tracking.model import generative, initial
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.rows import ROWS, TUNED, Row
from steelyard.experiments.tracking.shapes import images
from steelyard.experiments.tracking.table2 import Plan, find, load, run, show
from steelyard.output import terminal

FEW = (Row("RWS", "rws", 4, 1), Row("HMC-RWS", "rws", 2, 1, leapfrog=TUNED), Row("APG", "apg", 2, 2))


@pytest.mark.long
def test_a_table_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("apg", "rws"):
        parameters.save(Networks(jax.random.key(0)), parameters.path(method, tmp_path), {})
    plan = Plan(FEW, ((2, 2),), videos=1)
    first = run(plan, tmp_path, tmp_path / "out", terminal(), "steelyard table2")
    again = run(plan._replace(videos=2), tmp_path, tmp_path / "out", terminal(), "steelyard table2")
    for cell, found in again.items():
        assert found[0] == first[cell][0]
        assert len(found) == 2 and found[1] != found[0]
    assert "APG 2 x 2" in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "table2.json").read_text())
    assert [row["method"] for row in content["rows"]] == ["RWS", "HMC-RWS", "APG"]
    for name in ("tracked.gif", "figure4.png", "sweeps.png", "report.html"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<img") == 3 and "http" not in page.replace("http-equiv", "")

    measured = show(2, 2, FEW[2], tmp_path, tmp_path / "shown", terminal())
    assert measured == first[list(first)[2]][0]
    assert {path.name for path in (tmp_path / "shown").iterdir()} == {"tracked.gif", "figure4.png"}

    parameters.save(Networks(jax.random.key(1)), parameters.path("apg", tmp_path), {})
    with pytest.raises(sy.CheckpointError, match="other networks"):
        run(plan, tmp_path, tmp_path / "out", terminal(), "steelyard table2")


def test_averages_with_and_without_weights() -> None:
    video = held_out(2, 2, 1)
    networks = Networks(jax.random.key(0))
    frames = video.frames[0]
    out = sy.evaluate(
        sy.propose(generative(networks, frames, 2), initial(networks, frames, 2)), jax.random.key(0), particles=5
    )
    found = explained(out)
    joint = [
        float(sy.log_density(generative(networks, frames, 2), {a: x[l] for a, x in out.trace.items()}))
        for l in range(5)
    ]
    np.testing.assert_allclose(found.log_joint, np.mean(joint), rtol=1e-4)
    np.testing.assert_allclose(found.weighted, np.sum(out.normalized_weights * np.array(joint)), rtol=1e-4)
    best = int(np.argmax(out.log_weight))
    np.testing.assert_array_equal(found.where[1], out.trace["where 1"][best])
    assert reconstruction(found, 96).shape == (2, 96, 96)


def test_distances_are_between_centres_of_mass_under_the_best_matching() -> None:
    videos = held_out(3, 2, 2)
    truth = Explained(*[jnp.zeros(2)] * 4, jnp.asarray(images())[videos.shapes], videos.positions)
    assert tracked(truth, videos).mean < 1e-3
    assert tracked(truth, videos).complete == 1
    order = jnp.array([2, 0, 1])
    mixed = replace(truth, objects=truth.objects[:, order], where=truth.where[:, :, order])
    assert tracked(mixed, videos).mean < 1e-3
    # Drawn two pixels to the left, and placed two pixels to the right of where it would be.
    off = replace(truth, objects=jnp.roll(truth.objects, -2, axis=-1), where=truth.where.at[..., 0].add(2 / 34))
    assert tracked(off, videos).mean < 1e-3
    moved = replace(truth, where=truth.where.at[0, :, 1, 0].add(10 / 34))
    np.testing.assert_allclose(tracked(moved, videos).mean, 10 / 6, rtol=1e-3)
    assert tracked(moved, videos).complete == 0.5


def test_the_ceiling_is_above_what_a_wrong_place_gives() -> None:
    assert -1000 < cells.ceiling(3, 3, 2) < -100


def test_orders_are_paired_by_video() -> None:
    def measured(x: float) -> cells.Measured:
        return cells.Measured(x, x, x, 1.0, 1.0, 1.0)

    results = {
        Cell(FEW[0], 3, 10): [measured(x) for x in (-10.0, -500.0)],
        Cell(FEW[2], 3, 10): [measured(x) for x in (-9.0, -498.0)],
    }
    line = table.orders(results)[0]
    assert (line["gain"], line["error"]) == (1.5, 0.5)
    assert table.gains(results, 3, 10) == "Gains, video by video: RWS 4 x 1 to APG 2 x 2: +2 ± 0."
    assert table.gains(results, 4, 10) == ""


@pytest.mark.parametrize(("methods", "columns"), [("SVI", None), (None, "3"), (None, "3x0"), (None, "axb"), ("", None)])
def test_plans_that_make_no_sense(methods: str | None, columns: str | None) -> None:
    with pytest.raises(sy.ArgumentError):
        find(Plan(), methods, columns, None)


def test_plans_of_the_command_line() -> None:
    plan = find(Plan(), "apg, rws", "3x10,5x100", 7)
    assert [row.name for row in plan.rows] == ["RWS", "APG", "APG", "APG"]
    assert plan.columns == [(3, 10), (5, 100)] and plan.videos == 7
    assert Cell(ROWS[4], 3, 10).paper == -2267
    assert Cell(ROWS[4], 5, 100).paper is None


@pytest.mark.long
def test_the_parameters_of_the_package_track_what_they_were_not_trained_on() -> None:
    """More objects and another number of frames than in training, with few particles and one sweep."""
    videos = held_out(4, 4, 2)
    found = cells.explain(Row("APG", "apg", 10, 2), load("apg"), videos, 0)
    assert tracked(found, videos).mean < 4
    load("rws")
    assert sum(path.stat().st_size for path in parameters.HERE.iterdir()) < 8e6
