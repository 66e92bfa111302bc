"""A table of two cells, so small that it is made in seconds."""

import io
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

from steelyard.experiments.annealing.cells import Result
from steelyard.experiments.annealing.table1 import Plan, run

PLAN = Plan(methods=("AVO", "NVIR*"), densities=(3,), seeds=2, steps=3, budget=12, batches=2)
COMMAND = "steelyard table1 --methods 'AVO,NVIR*' --K 3"


class Made(NamedTuple):
    plan: Plan
    out: Path
    results: list[Result]
    printed: str


def make(plan: Plan, out: Path) -> Made:
    console = Console(file=io.StringIO(), width=100)
    results = run(plan, out, console, COMMAND)
    return Made(plan, out, results, console.file.getvalue())  # pyright: ignore


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(PLAN, tmp_path_factory.mktemp("table1"))
