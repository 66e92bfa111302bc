"""Table 1 next to the paper's, cell by cell: printed, and written as CSV, JSON and Markdown."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Group
from rich.styled import Styled
from rich.table import Table

from steelyard.experiments.annealing.cells import Result
from steelyard.experiments.annealing.evaluation import Summary
from steelyard.experiments.annealing.model import LOG_Z
from steelyard.experiments.annealing.settings import PAPER_BUDGET, PAPER_STEPS
from steelyard.experiments.folders import write

PAPER_LOG_Z = {
    "AVO": {2: 1.88, 4: 1.99, 6: 2.05, 8: 2.06},
    "NVI": {2: 1.88, 4: 1.99, 6: 2.06, 8: 2.07},
    "NVIR": {2: 1.88, 4: 2.05, 6: 2.07, 8: 2.08},
    "NVI*": {2: 1.88, 4: 2.03, 6: 2.08, 8: 2.08},
    "NVIR*": {2: 1.88, 4: 1.99, 6: 2.08, 8: 2.08},
}
PAPER_ESS = {
    "AVO": {2: 426, 4: 291, 6: 285, 8: 295},
    "NVI": {2: 427, 4: 341, 6: 308, 8: 319},
    "NVIR": {2: 418, 4: 828, 6: 934, 8: 961},
    "NVI*": {2: 427, 4: 304, 6: 414, 8: 481},
    "NVIR*": {2: 418, 4: 981, 6: 978, 8: 965},
}
PEERS = (
    "For the 20 cells of the paper's table, with all seeds, the authors' code needs about 53 hours on two cores, at "
    "11.8 steps a second for K = 8, and coix 0.1.0 about 50 minutes, at 1,000."
)
CLOSE = 0.02
AS_GOOD, WORSE = "✓", "✗"


@dataclass(frozen=True)
class Row:
    """A cell of the table as plain numbers; errors are standard errors of the mean over seeds.

    The paper's figures are compared with resampling at test time for the methods that resample in training, and
    without it for the others. A cell is as good as the paper's if log Z is within 0.02 of the paper's or closer to
    log 8 than that, and if the effective sample size is no smaller. A cell that was trained for less is short: that it
    is worse says nothing.
    """

    method: str
    K: int
    log_z: float
    log_z_error: float | None
    log_z_resampled: float
    log_z_resampled_error: float | None
    log_z_paper: float | None
    log_z_difference: float | None
    log_z_as_good: bool | None
    ess: float
    ess_error: float | None
    ess_resampled: float
    ess_resampled_error: float | None
    ess_paper: float | None
    ess_difference: float | None
    ess_as_good: bool | None
    modes: float
    modes_resampled: float
    seconds: float
    is_short: bool

    @classmethod
    def of(cls, result: Result) -> "Row":
        """Summarise a cell, and compare it with the paper's."""
        method, k = result.cell.method, result.cell.densities
        compared = result.metrics(resampling=result.cell.kind.resampling)
        log_z, ess = Summary.of(compared.log_z).mean, Summary.of(compared.ess).mean
        paper_log_z, paper_ess = (x.get(method, {}).get(k) for x in (PAPER_LOG_Z, PAPER_ESS))
        return cls(
            method,
            k,
            *Summary.of(result.plain.log_z),
            *Summary.of(result.resampled.log_z),
            *_against(log_z, paper_log_z, paper_log_z is not None and _as_good(log_z, paper_log_z)),
            *Summary.of(result.plain.ess),
            *Summary.of(result.resampled.ess),
            *_against(ess, paper_ess, paper_ess is not None and ess >= paper_ess),
            Summary.of(result.plain.modes).mean,
            Summary.of(result.resampled.modes).mean,
            result.seconds,
            result.cell.is_short,
        )


def _as_good(log_z: float, paper: float) -> bool:
    return abs(log_z - paper) <= CLOSE or abs(log_z - LOG_Z) <= abs(paper - LOG_Z)


def _against(ours: float, paper: float | None, as_good: bool) -> tuple[float | None, float | None, bool | None]:
    return (None, None, None) if paper is None else (paper, ours - paper, as_good)


HEADINGS = (
    "method",
    "K",
    "log Z",
    "log Z, resampled",
    "paper",
    "difference",
    "ESS",
    "ESS, resampled",
    "paper",
    "difference",
    "modes",
)


def texts(row: Row) -> tuple[str, ...]:
    """Return a row as text, in the order of the headings."""
    return (
        row.method,
        str(row.K),
        Summary(row.log_z, row.log_z_error).text(3),
        Summary(row.log_z_resampled, row.log_z_resampled_error).text(3),
        "" if row.log_z_paper is None else f"{row.log_z_paper:.2f}",
        _difference(row, row.log_z_difference, row.log_z_as_good, "+.3f"),
        Summary(row.ess, row.ess_error).text(0),
        Summary(row.ess_resampled, row.ess_resampled_error).text(0),
        "" if row.ess_paper is None else f"{row.ess_paper:.0f}",
        _difference(row, row.ess_difference, row.ess_as_good, "+.0f"),
        f"{row.modes:.3g}",
    )


def _difference(row: Row, difference: float | None, as_good: bool | None, form: str) -> str:
    if difference is None:
        return ""
    mark = AS_GOOD if as_good else "" if row.is_short else WORSE
    return f"{difference:{form}} {mark}".strip()


CAPTION = (
    f"Mean over seeds ± its standard error; exact log Z = log 8 = {LOG_Z:.4f}; ESS of 1,000 samples at the last level, "
    "without and with resampling at test time. Differences from the paper are with it for NVIR and NVIR*, without it "
    f"for the others; NVIR*+ is not in the paper: {AS_GOOD} as good as the paper's, {WORSE} worse."
)


SHORT = (
    f"A short run: the paper trains for {PAPER_STEPS:,} steps with a budget of {PAPER_BUDGET}, and its figures are no "
    f"yardstick for less. Compare log Z with the exact one, {LOG_Z:.4f}, and the methods with each other. For the "
    "paper's table: steelyard table1."
)


def caption(rows: Sequence[Row]) -> str:
    """Return what is to be said below the table; of a short run, what it can be compared with."""
    return f"{CAPTION} {SHORT}" if any(row.is_short for row in rows) else CAPTION


def printed(rows: Sequence[Row]) -> Group:
    """Return both halves of the table for a terminal, log Z and ESS, with the differences in colour."""
    return Group(_half("log Z", rows, slice(2, 6)), _half("ESS", rows, slice(6, 11)), caption(rows))


def _half(title: str, rows: Sequence[Row], columns: slice) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left", header_style="bold", box=SIMPLE)
    table.add_column("method", no_wrap=True)
    for heading in ("K", *HEADINGS[columns]):
        table.add_column(heading.removeprefix(f"{title}, "), justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1].method != row.method
        table.add_row(*map(_coloured, (row.method, str(row.K), *texts(row)[columns])), end_section=last)
    return table


def _coloured(text: str) -> str | Styled:
    style = {AS_GOOD: "green", WORSE: "red"}.get(text[-1:])
    return text if style is None else Styled(text, style)


def as_csv(rows: Sequence[Row]) -> str:
    """Return the numbers as CSV; what is not known is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return file.getvalue()


def as_json(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """Return the numbers as JSON, with what is to be known about the run."""
    return json.dumps({"about": about, "exact_log_z": LOG_Z, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    lines = [HEADINGS, ["---", *["---:"] * (len(HEADINGS) - 1)], *map(texts, rows)]
    table = "\n".join("| " + " | ".join(text.replace("*", r"\*") for text in line) + " |" for line in lines)
    return f"{table}\n\n{caption(rows).replace('*', chr(92) + '*')}\n"


def save(rows: Sequence[Row], about: dict[str, Any], out: Path) -> list[Path]:
    """Write the table in every format.

    Args:
        rows: the cells.
        about: the command and the versions that made them.
        out: the folder of the results.

    Returns:
        The paths of the files.
    """
    contents = {"csv": as_csv(rows), "json": as_json(rows, about), "md": as_markdown(rows)}
    return [write(out / f"table1.{ending}", content.encode()) for ending, content in contents.items()]
