"""The commands, as a user runs them."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steelyard.cli import app

ROOT = Path(__file__).parent.parent


def test_demo_prints_estimates_next_to_exact_values_and_saves_a_figure(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    estimate, exact = map(float, re.search(r"log Z +(\S+) +(\S+)", result.output).groups())  # pyright: ignore
    assert abs(estimate - exact) < 0.03
    assert "E[v | x]" in result.output
    assert "distinct ancestors" in result.output
    assert "└── then: update" in result.output
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_demo_refuses_a_number_of_particles_that_makes_no_sense() -> None:
    result = CliRunner().invoke(app, ["demo", "--particles", "0"])
    assert result.exit_code == 2
    assert "--particles" in result.output


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"steelyard {version('steelyard')}\n"


TABLE = ["table1", "--methods", "AVO", "--K", "2", "--seeds", "2", "--steps", "3", "--budget", "12"]
COMMANDS = {"demo": ["demo", "--particles", "50"], "table1": TABLE}
TRACKING = {
    "table2": ["table2", "--quick"],
    "table2 show": ["table2", "show"],
    "table2 train": ["table2", "train", "--small"],
}


@pytest.mark.parametrize("name", [*COMMANDS, *TRACKING])
@pytest.mark.parametrize("where", ["file", "file/below", "dangling"])
def test_a_folder_that_cannot_be_made_is_found_before_anything_is_computed(
    name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    monkeypatch.setattr("steelyard.evaluate", None)
    result = CliRunner().invoke(app, [*(COMMANDS | TRACKING)[name], "--out", str(tmp_path / where)])
    assert result.exit_code == 2, result.output
    assert "cannot hold the results" in " ".join(result.output.replace("│", " ").split())
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["train", "--method", "svi"], "apg nor rws"), (["--methods", "SVI"], "SVI"), (["--columns", "3"], "3x10")],
)
def test_tracking_commands_that_make_no_sense(arguments: list[str], named: str) -> None:
    result = CliRunner().invoke(app, ["table2", *arguments])
    assert result.exit_code == 2
    assert named in " ".join(result.output.replace("│", " ").split())


def test_cells_that_cannot_be_kept_are_found_before_they_are_computed(tmp_path: Path) -> None:
    (tmp_path / "cells").write_text("mine")
    result = CliRunner().invoke(app, [*TABLE, "--out", str(tmp_path)])
    assert result.exit_code == 2 and "cannot hold the results" in " ".join(result.output.replace("│", " ").split())


ENCODINGS = ("ascii", "cp1252")
# One process for all commands and encodings: most of its time is that of its imports. The table comes first: its command
# starts the process anew.
EVERY_STREAM = """
import sys
from steelyard.cli import main
folder, *encodings = sys.argv[1:]
for encoding in encodings:
    for name, command in {commands}:
        sys.stdout.flush()
        sys.stdout.reconfigure(encoding=encoding)
        sys.argv = ["steelyard", *command, "--out", f"{{folder}}/{{encoding}}/{{name}}/[bold]é ж"]
        try:
            main()
        except SystemExit as end:
            assert not end.code, end.code
        print("END")
"""


def test_a_stream_that_lacks_characters_gets_every_line(tmp_path: Path) -> None:
    runs = sorted(COMMANDS.items(), reverse=True)
    command = [sys.executable, "-c", EVERY_STREAM.format(commands=runs), str(tmp_path), *ENCODINGS]
    environment = {**os.environ, "PYTHONIOENCODING": ENCODINGS[0]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split(b"END\n")[:-1]
    for (encoding, (name, _)), part in zip(product(ENCODINGS, runs), parts, strict=True):
        printed = part.decode(encoding)
        assert ("é" if encoding == "cp1252" else "\\xe9") + " \\u0436" in printed and "[bold]" in printed
        if name == "table1":
            assert re.search(r"\| AVO +\| 2 \| +[\d.]+ (\+-|±) [\d.]+ \|.* (y|n) \|", printed)
            files = {path.name for path in (tmp_path / encoding / name / "[bold]é ж").iterdir()}
            assert {"report.html", "table1.csv", "table1.md"} <= files
        else:
            assert "`-- then: update" in printed and "E[v | x]" in printed and "distinct ancestors" in printed
