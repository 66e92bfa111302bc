"""One page with everything: it opens from disk, with no network."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from steelyard.experiments.annealing import diagram, figures, table
from steelyard.experiments.annealing.cells import Result
from steelyard.experiments.folders import write
from steelyard.experiments.pages import page, picture

CAPTIONS = {
    "samples": "Density and samples at each level (the paper's Figure 3)",
    "schedules": "Learned schedules, a line for each seed",
    "training": "log Z and effective sample size over training",
}


def save(results: Sequence[Result], pictures: Mapping[str, Path], about: Mapping[str, Any], out: Path) -> Path:
    """Write the report.

    Args:
        results: the cells.
        pictures: the figures as PNG, by what they show.
        about: the command and the versions that made them.
        out: the folder of the results.

    Returns:
        The path of the HTML file.
    """
    looked_at, rows = figures.shown(results), [table.Row.of(result) for result in results]
    sections = [
        "<h1>Annealed variational inference: Table 1</h1>",
        "<p>A ring of eight Gaussians, sampled along a path of K densities with learned kernels. Paper: Stites, "
        "Zimmermann et al., <cite>Learning Proposals for Probabilistic Programs with Inference Combinators</cite>, "
        "UAI 2021.</p>",
        f'<div class="wide">{_table(rows)}</div>',
        f"<p>{escape(table.caption(rows))} {escape(looked_at.cell.effort)}.</p>",
        f"<h2>The inference program: {escape(looked_at.cell.method)}, K = {looked_at.cell.densities}</h2>",
        f'<div class="wide">{diagram.svg(looked_at)}</div>',
        *(picture(name, CAPTIONS[name], path) for name, path in pictures.items()),
        "<h2>How it was made</h2>",
        f"<pre>{escape(about['command'])}</pre>",
        f"<p>{about['seconds']:.0f} seconds, {about['seconds_of_the_paper']:.0f} of them for methods of the paper, "
        f"compilation included; {escape(about['machine'])}. {escape(table.PEERS)}</p>",
        f"<p>{escape(', '.join(f'{name} {number}' for name, number in about['versions'].items()))}</p>",
    ]
    return write(out / "report.html", page("Table 1 by steelyard", sections))


def _table(rows: Sequence[table.Row]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.HEADINGS)
    body = []
    for number, row in enumerate(rows):
        first = ' class="first"' if number == 0 or rows[number - 1].method != row.method else ""
        cells = "".join(_cell(text) for text in table.texts(row))
        body.append(f"<tr{first}>{cells}</tr>")
    return f'<table id="table1"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def _cell(text: str) -> str:
    kind = {table.AS_GOOD: ' class="good"', table.WORSE: ' class="worse"'}.get(text[-1:], "")
    return f"<td{kind}>{escape(text)}</td>"
