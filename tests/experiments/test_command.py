"""The command `steelyard table1`, and what it says to values that make no sense."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from steelyard.cli import app
from steelyard.experiments.annealing import cells, table, table1
from steelyard.experiments.annealing.table1 import QUICK, Plan
from tests.experiments.conftest import Made


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["table1", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "SMC"], "no method 'SMC'"),
        (["--methods", ""], "no method ''"),
        (["--K", "two"], "'two' is not a list of whole numbers"),
        (["--K", "1"], "at least 2 densities"),
        (["--budget", "8", "--K", "8"], "budget of 16 or more"),
        (["--seeds", "0"], "--seeds"),
        (["--average", "2"], "--average"),
        (["--steps", "many"], "--steps"),
        (["--sampels", "3"], "--sampels"),
    ],
)
def test_unknown_values_are_named(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = invoke(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Plan:
    seen = []
    monkeypatch.setattr(table1, "run", lambda plan, *rest: seen.append(plan))
    assert invoke(*arguments).exit_code == 0
    return seen[0]


def test_the_whole_table_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(monkeypatch)
    assert plan == Plan()
    names = [cell.method for cell in plan.cells()]
    assert len([name for name in names if name in table.PAPER_ESS]) == 20
    assert set(names) - set(table.PAPER_ESS) == {"NVIR*+"}
    assert {cell.particles for cell in plan.cells()} == {144, 72, 48, 36}


def test_quick_is_a_part_of_it_and_options_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, "--quick") == QUICK
    plan = planned(monkeypatch, "--quick", "--K", "2, 4", "--methods", "NVI*, NVI")
    assert [(cell.method, cell.densities) for cell in plan.cells()] == [
        ("NVI", 2),
        ("NVI", 4),
        ("NVI*", 2),
        ("NVI*", 4),
    ]
    assert plan.steps == QUICK.steps


def test_a_damaged_cell_ends_the_run_and_is_named(made: Made, tmp_path: Path) -> None:
    cell = Plan(methods=["AVO"], densities=[2], seeds=1, steps=1).cells()[0]
    path = tmp_path / cells.FOLDER / f"{cell.name}.json"
    path.parent.mkdir()
    path.write_text("no JSON")
    result = invoke("--methods", "AVO", "--K", "2", "--seeds", "1", "--steps", "1", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert f"{path} is damaged" in result.output
