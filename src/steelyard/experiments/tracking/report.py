"""One page with the table and the pictures: it opens from disk, with no network."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from steelyard.experiments.folders import write
from steelyard.experiments.pages import page, picture
from steelyard.experiments.tracking import table
from steelyard.experiments.tracking.cells import Cell, Measured

CAPTIONS = {
    "tracked": "A video, tracked",
    "figure4": "Inferred positions and reconstructions (the paper's Figure 4)",
    "sweeps": "Sweeps in place of particles, at equal budgets",
}


def save(
    results: Mapping[Cell, list[Measured]], pictures: Mapping[str, Path], about: Mapping[str, Any], out: Path
) -> Path:
    """Write the report.

    Args:
        results: the cells.
        pictures: the figures, by what they show.
        about: the command that made them, and what it took.
        out: the folder of the results.

    Returns:
        The path of the HTML file.
    """
    sections = ["<h1>Unsupervised multi-object tracking: Table 2</h1>"]
    for objects, length in table.columns(results):
        part = _table(results, objects, length)
        sections += [f"<h2>D = {objects}, T = {length}</h2>", f'<div class="wide">{part}</div>']
        sections += [f"<p>{escape(table.gains(results, objects, length))}</p>"]
    sections += [
        f"<p>{escape(table.CAPTION)} {escape(str(about['ceiling']))}</p>",
        *(picture(name, CAPTIONS[name], path) for name, path in pictures.items()),
        "<h2>How it was made</h2>",
        f"<pre>{escape(str(about['command']))}</pre>",
        f"<p>{about['seconds']:.0f} seconds, {about['videos']} test videos a cell.</p>",
    ]
    return write(out / "report.html", page("Table 2 by steelyard", sections))


def _table(results: Mapping[Cell, list[Measured]], objects: int, length: int) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.HEADINGS)
    rows = [
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in table.texts(results, cell)) + "</tr>"
        for cell in results
        if cell.kind == (objects, length)
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
