"""The table: comparison with the paper, and every format."""

import csv
import io
import json
from typing import Any

import numpy as np
import pytest

from steelyard.experiments.annealing import table
from steelyard.experiments.annealing.cells import Result
from steelyard.experiments.annealing.evaluation import Metrics, Summary
from steelyard.experiments.annealing.settings import Cell
from tests.experiments.conftest import COMMAND, Made


def result(method: str, k: int, *, log_z: Any, ess: Any, resampled: Any, steps: int = 20_000) -> Result:
    seeds = len(log_z)

    def metrics(ess: Any) -> Metrics:
        return Metrics(np.array(log_z), np.array(ess), np.ones((seeds, k - 1)), np.full((seeds, 8), 1 / 8))

    nothing: Any = None
    return Result(Cell(method, k, seeds, steps, 288), metrics(ess), metrics(resampled), 1.0, nothing, nothing)


def test_a_mean_has_its_standard_error() -> None:
    assert Summary.of([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert Summary.of([2.0]) == (2.0, None)
    assert (Summary(2.0, None).text(1), Summary(2.0, 0.25).text(2)) == ("2.0", "2.00 ± 0.25")


@pytest.mark.parametrize(
    ("log_z", "as_good"),
    [(2.06, True), (2.041, True), (2.039, False), (2.079, True), (2.098, True), (2.12, False)],
)
def test_log_z_is_as_good_if_close_to_the_paper_or_closer_to_the_truth(log_z: float, as_good: bool) -> None:
    row = table.Row.of(result("AVO", 8, log_z=[log_z], ess=[295.0], resampled=[1.0]))
    assert row.log_z_as_good is as_good
    assert row.log_z_difference == pytest.approx(log_z - 2.06)


def test_methods_that_resample_in_training_are_compared_with_resampling() -> None:
    plain = table.Row.of(result("NVI*", 8, log_z=[2.08], ess=[481.0], resampled=[1.0]))
    resampled = table.Row.of(result("NVIR*", 8, log_z=[2.08], ess=[1.0], resampled=[964.0]))
    assert (plain.ess_as_good, plain.ess_difference) == (True, 0.0)
    assert (resampled.ess_as_good, resampled.ess_difference) == (False, -1.0)


def test_where_the_paper_has_no_figure_there_is_no_comparison() -> None:
    row = table.Row.of(result("AVO", 3, log_z=[2.0], ess=[1.0], resampled=[1.0]))
    assert row.log_z_paper is row.log_z_as_good is row.ess_difference is None
    assert "" in table.texts(row)


def test_a_mode_counts_if_it_holds_one_twentieth() -> None:
    weight = np.array([[0.5, 0.3, 0.05, 0.049, 0.101, 0.0, 0.0, 0.0]])
    assert Metrics(np.zeros(1), np.zeros(1), np.zeros((1, 1)), weight).modes.tolist() == [4.0]


def test_the_printed_table_marks_differences(made: Made) -> None:
    assert "NVIR*" in made.printed
    assert "log 8 = 2.0794" in made.printed
    rows = [table.Row.of(result("AVO", 8, log_z=[2.06], ess=[100.0], resampled=[1.0]))]
    assert table.texts(rows[0])[5].endswith(table.AS_GOOD)
    assert table.texts(rows[0])[9] == f"-195 {table.WORSE}"
    assert table.caption(rows) == table.CAPTION


def test_a_short_run_is_not_called_worse_than_the_paper(made: Made) -> None:
    row = table.Row.of(result("AVO", 8, log_z=[2.06], ess=[100.0], resampled=[1.0], steps=19_999))
    assert table.texts(row)[5].endswith(table.AS_GOOD)
    assert table.texts(row)[9] == "-195" and row.ess_as_good is False
    assert "Compare log Z with the exact one" in table.caption([row])
    assert table.SHORT.split(":")[0] in (made.out / "table1.md").read_text()
    worse = [line for line in made.printed.splitlines() if table.WORSE in line and "worse" not in line]
    assert not worse


def test_csv_and_json_have_the_same_numbers(made: Made) -> None:
    rows = list(csv.DictReader(io.StringIO((made.out / "table1.csv").read_text())))
    content = json.loads((made.out / "table1.json").read_text())
    assert content["about"]["command"] == COMMAND
    assert content["about"]["versions"]["jax"]
    assert [row["method"] for row in rows] == ["AVO", "NVIR*"]
    for line, row in zip(rows, content["rows"], strict=True):
        assert {name: "" if x is None else str(x) for name, x in row.items()} == line


def test_markdown_has_a_line_for_every_cell(made: Made) -> None:
    lines = (made.out / "table1.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines[:4]] == ["method", "---", "AVO", r"NVIR\*"]
    assert len({line.count("|") for line in lines[:4]}) == 1
