"""Finished cells are kept, found again, and never taken for others."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import steelyard as sy
from steelyard.experiments.annealing import cells, table1
from steelyard.experiments.annealing.methods import METHODS
from steelyard.experiments.annealing.settings import Cell
from steelyard.experiments.annealing.train import train
from tests.experiments.conftest import Made, make


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> tuple[Cell, Path]:
    """One finished cell in a folder of its own."""
    cells.save(made.results[1], tmp_path)
    return made.results[1].cell, tmp_path


def only(folder: Path, ending: str) -> Path:
    (path,) = (folder / cells.FOLDER).glob(f"*.{ending}")
    return path


def test_what_is_kept_comes_back(made: Made) -> None:
    for result in made.results:
        again = cells.load(result.cell, made.out)
        assert again is not None
        for found, expected in zip(jax.tree.leaves(again.samplers), jax.tree.leaves(result.samplers), strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
        np.testing.assert_array_equal(again.history.log_z, result.history.log_z)
        for found, expected in zip([*again.plain, *again.resampled], [*result.plain, *result.resampled], strict=True):
            np.testing.assert_allclose(found, expected)


def test_a_finished_table_is_not_computed_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table1, "train", None)
    again = make(made.plan, made.out)
    assert "2 of 2 cells are in" in again.printed
    assert "0 cells computed" in again.printed


def test_an_interrupted_run_goes_on_with_the_cells_that_are_missing(
    copied: tuple[Cell, Path], made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []
    results = {result.cell: result for result in made.results}
    monkeypatch.setattr(table1, "_fill", lambda cell, *_: computed.append(cell.method) or results[cell])
    make(made.plan, copied[1])
    assert computed == ["AVO"]


def test_what_two_methods_have_in_common_is_computed_once(tmp_path: Path) -> None:
    """With two densities there is no schedule to learn; what is taken over is what training gives."""
    plan = table1.Plan(methods=("NVI", "NVI*"), densities=(2,), seeds=1, steps=3, budget=12, batches=2)
    first, second = make(plan, tmp_path).results
    assert (first.cell.method, second.cell.method) == ("NVI", "NVI*")
    assert cells.load(second.cell, tmp_path) is not None
    samplers, _ = train(second.cell)
    for found, expected in zip(jax.tree.leaves(second.samplers), jax.tree.leaves(samplers), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    np.testing.assert_array_equal(second.plain.ess, first.plain.ess)


def test_methods_that_differ_have_no_cells_in_common() -> None:
    work = [Cell(method, k, 1, 3, 12).work for k in (2, 3) for method in METHODS]
    assert len({*map(repr, work)}) == 2 * len(METHODS) - 2
    assert Cell("NVIR*", 2, 1, 3, 12).work == Cell("NVIR", 2, 1, 3, 12).work


def test_other_settings_are_another_cell(made: Made) -> None:
    cell = made.results[0].cell
    changes = {
        "densities": 4,
        "seeds": 1,
        "steps": 4,
        "budget": 13,
        "samples": 9,
        "batches": 3,
        "average": 0.5,
        "method": "NVI",
    }
    for name, value in changes.items():
        assert cells.load(replace(cell, **{name: value}), made.out) is None


CHANGES = {"learning_rate": 2e-3, "decays": True, "resampling": False, "learned": False, "objective": sy.objectives.avo}


@pytest.mark.parametrize("name", CHANGES)
def test_a_cell_of_a_method_that_was_another_is_not_taken_for_this_one(
    name: str, copied: tuple[Cell, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, folder = copied
    monkeypatch.setitem(METHODS, cell.method, replace(METHODS[cell.method], **{name: CHANGES[name]}))
    try:
        assert cells.load(cell, folder) is None
    except sy.CheckpointError as error:
        assert "should hold the cell" in str(error)


@pytest.mark.parametrize("ending", ["json", "npz"])
@pytest.mark.parametrize("content", [b"", b"{}", b"garbage", b"\x80\x04N."])
def test_a_damaged_file_is_named(copied: tuple[Cell, Path], ending: str, content: bytes) -> None:
    cell, folder = copied
    path = only(folder, ending)
    path.write_bytes(content)
    with pytest.raises(sy.CheckpointError, match="damaged") as caught:
        cells.load(cell, folder)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_a_file_that_was_cut_short_is_named(copied: tuple[Cell, Path]) -> None:
    cell, folder = copied
    path = only(folder, "npz")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(sy.CheckpointError, match=r"npz is damaged"):
        cells.load(cell, folder)


def test_missing_parameters_are_named(copied: tuple[Cell, Path]) -> None:
    cell, folder = copied
    only(folder, "npz").unlink()
    with pytest.raises(sy.CheckpointError, match=r"\.npz is damaged"):
        cells.load(cell, folder)


def test_the_file_of_another_cell_is_refused(copied: tuple[Cell, Path]) -> None:
    cell, folder = copied
    path = only(folder, "json")
    content = json.loads(path.read_text())
    content["settings"]["steps"] = 7
    path.write_text(json.dumps(content))
    with pytest.raises(sy.CheckpointError, match="should hold the cell") as caught:
        cells.load(cell, folder)
    assert str(path) in str(caught.value)


def test_the_parameters_of_another_cell_are_refused(copied: tuple[Cell, Path], made: Made) -> None:
    cell, folder = copied
    other = next(path for path in (made.out / cells.FOLDER).glob("avo*.npz"))
    only(folder, "npz").write_bytes(other.read_bytes())
    with pytest.raises(sy.CheckpointError, match="should hold the cell"):
        cells.load(cell, folder)


def test_nothing_is_unpickled(copied: tuple[Cell, Path]) -> None:
    cell, folder = copied
    path = only(folder, "npz")
    np.savez(path, settings=np.array([{"an": "object"}], dtype=object))
    with pytest.raises(sy.CheckpointError, match="allow_pickle=False"):
        cells.load(cell, folder)


def test_no_temporary_file_stays(made: Made) -> None:
    assert not list(made.out.rglob("*.tmp*"))
