"""Training: it learns, it can be taken up again, and what it wrote can be read."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import steelyard as sy
from steelyard.experiments.tracking import parameters
from steelyard.experiments.tracking.networks import Networks
from steelyard.experiments.tracking.settings import PAPER, Setting, Stage
from steelyard.experiments.tracking.train import train
from steelyard.output import terminal

TINY = Setting((Stage(2, 3, 1, 4, 1e-3), Stage(3, 3, 1, 2, 1e-3)), objects=2, canvas=36, batch=2, videos=20)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Networks]:
    out = tmp_path_factory.mktemp("tracking")
    return out, train("apg", TINY, out, terminal())


@pytest.mark.long
def test_training_leaves_parameters_a_log_and_a_picture(trained: tuple[Path, Networks]) -> None:
    out, networks = trained
    lines = [json.loads(line) for line in (out / "log-apg.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == [1, 2]
    assert [line["step"] for line in lines] == [4, 2]
    assert np.isfinite([line["log p(x, z)"] for line in lines]).all()
    assert (out / "reconstruction-apg.png").read_bytes().startswith(b"\x89PNG")
    read = parameters.load(parameters.path("apg", out), TINY.canvas)
    for ours, theirs in zip(_arrays(networks), _arrays(read), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
    before = _arrays(Networks(jax.random.fold_in(jax.random.key(TINY.seed), 1), TINY.canvas))
    assert all((x != y).any() for x, y in zip(before, _arrays(networks), strict=True))


@pytest.mark.long
def test_the_same_command_goes_on_where_it_was(trained: tuple[Path, Networks]) -> None:
    """Both stages are finished: nothing is trained again, and the result is the same to the last bit."""
    out, networks = trained
    again = train("apg", TINY, out, terminal())
    for ours, theirs in zip(_arrays(networks), _arrays(again), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long
def test_files_that_hold_no_networks(trained: tuple[Path, Networks], tmp_path: Path) -> None:
    with pytest.raises(sy.CheckpointError, match="steelyard table2 train"):
        parameters.load(tmp_path / "nothing.safetensors", 36)
    (tmp_path / "broken").write_bytes(b"\x00" * 20)
    with pytest.raises(sy.CheckpointError, match="broken"):
        parameters.load(tmp_path / "broken", 36)
    with pytest.raises(sy.CheckpointError, match="other networks"):
        parameters.load(parameters.path("apg", trained[0]), 40)


def test_the_paper_s_setting_is_the_paper_s() -> None:
    (stage,) = PAPER.stages
    assert (stage.length, PAPER.objects, stage.particles, stage.sweeps, stage.rate) == (10, 3, 20, 5, 2e-4)
    assert stage.steps * PAPER.batch == 200 * PAPER.videos


def _arrays(networks: Networks) -> list[Any]:
    return [x for x in jax.tree.leaves(networks) if hasattr(x, "shape")]
