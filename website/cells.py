"""Tutorials are scripts in the percent format of Jupytext: cells of text and cells of code."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEXT, CODE = "# %% [markdown]", "# %%"


@dataclass(frozen=True)
class Cell:
    """One cell: text in Markdown, or Python code that begins at a line of the script."""

    source: str
    is_code: bool
    line: int


@dataclass(frozen=True)
class Tutorial:
    """A script: its name, its cells, its title, and the question that it answers."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """The first line of the first cell."""
        return self.cells[0].source.splitlines()[0].removeprefix("# ")

    @property
    def question(self) -> str:
        """The second paragraph of the first cell, which is one sentence in italics."""
        return " ".join(self.cells[0].source.split("\n\n")[1].split()).strip("*")


def read(path: Path) -> Tutorial:
    """Return the tutorial that a script holds."""
    cells: list[Cell] = []
    lines: list[str] = []
    marker, start = "", 0
    for number, line in enumerate([*path.read_text().splitlines(), CODE], start=1):
        if line not in (TEXT, CODE):
            lines.append(line)
            continue
        if marker or any(lines):
            cells.append(_cell(lines, marker == CODE, start))
        lines, marker, start = [], line, number
    return Tutorial(path.stem, tuple(cells))


def _cell(lines: list[str], is_code: bool, start: int) -> Cell:
    if not is_code:
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
    return Cell("\n".join(lines).strip("\n"), is_code, start)


def notebook(tutorial: Tutorial) -> str:
    """Return the tutorial as a Jupyter notebook, without outputs."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    cells = [_in_notebook(number, cell) for number, cell in enumerate(tutorial.cells)]
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _in_notebook(number: int, cell: Cell) -> dict[str, Any]:
    common = {"id": f"cell-{number}", "metadata": {}, "source": cell.source}
    if cell.is_code:
        return {"cell_type": "code", **common, "execution_count": None, "outputs": []}
    return {"cell_type": "markdown", **common}
