"""The commands, as a user runs them."""

import re
from pathlib import Path

from typer.testing import CliRunner

from steelyard.cli import app


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
