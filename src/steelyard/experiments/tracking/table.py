"""Table 2 next to the paper's: printed, and written as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from steelyard.experiments.folders import write
from steelyard.experiments.tracking import cells
from steelyard.experiments.tracking.cells import Cell, Measured

CAPTION = (
    "log p(x, z), the average over particles without weights, as in the paper, and over test videos ± its standard "
    "error; 'weighted' with weights; '/ RWS' is the ratio to RWS. 'off' is the distance of the objects that were found "
    "to those that are there, in pixels, and 'kept' the share of videos in which none was lost; '/ px' is log p(x, z) "
    "by pixel. The videos are not the paper's: compare order and size."
)


def columns(results: Mapping[Cell, list[Measured]]) -> list[tuple[int, int]]:
    """Return the kinds of videos: numbers of objects and of frames."""
    return list(dict.fromkeys(cell.kind for cell in results))


HEADINGS = ("method L x K", "log p(x, z)", "paper", "weighted", "/ RWS", "off", "kept", "/ px")


def texts(results: Mapping[Cell, list[Measured]], cell: Cell) -> tuple[str, ...]:
    """Return a row of the table for one kind of videos, as text, in the order of the headings."""
    mean = cells.averages(results[cell])
    joint, error = mean["log_joint"]
    first = [x for c, x in results.items() if c.row.name == "RWS" and c.kind == cell.kind]
    ratio = f"{joint / cells.averages(first[0])['log_joint'][0]:.2f}" if first else ""
    return (
        cell.row.label,
        f"{joint:.0f} ± {error:.0f}",
        "" if cell.paper is None else f"{cell.paper:.0f}",
        f"{mean['weighted'][0]:.0f} ± {mean['weighted'][1]:.0f}",
        ratio,
        f"{mean['pixels'][0]:.2f}",
        f"{mean['complete'][0]:.0%}",
        f"{cells.per_pixel(joint, cell.length):.3f}",
    )


def printed(results: Mapping[Cell, list[Measured]], objects: int, length: int) -> Table:
    """Return the part of the table for one kind of videos."""
    table = Table(title=f"D={objects}, T={length}", title_style="bold", title_justify="left", box=None, padding=(0, 1))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right", no_wrap=True)
    for cell in results:
        if cell.kind == (objects, length):
            table.add_row(*texts(results, cell))
    return table


def orders(results: Mapping[Cell, list[Measured]]) -> list[dict[str, object]]:
    """Compare each row with the one before it, video by video: the difference and its standard error."""
    lines = []
    for objects, length in columns(results):
        column = [cell for cell in results if cell.kind == (objects, length)]
        for before, after in zip(column, column[1:], strict=False):
            for name in ("log_joint", "weighted"):
                gain = cells.column(results[after], name) - cells.column(results[before], name)
                lines.append(
                    {
                        "objects": objects,
                        "length": length,
                        "from": before.row.label,
                        "to": after.row.label,
                        "quantity": name,
                        "gain": float(gain.mean()),
                        "error": cells.standard_error(gain),
                    }
                )
    return lines


def gains(results: Mapping[Cell, list[Measured]], objects: int, length: int) -> str:
    """Tell how much each row gains over the one before it, video by video; empty, where there is but one."""
    lines = [x for x in orders(results) if (x["objects"], x["length"], x["quantity"]) == (objects, length, "log_joint")]
    each = (f"{x['from']} to {x['to']}: {x['gain']:+.0f} ± {x['error']:.0f}" for x in lines)
    return "Gains, video by video: " + "; ".join(each) + "." if lines else ""


def save(results: Mapping[Cell, list[Measured]], about: Mapping[str, object], out: Path) -> Path:
    """Write the numbers as JSON."""
    rows = [
        {"method": cell.row.name, "L": cell.row.particles, "K": cell.row.sweeps, "D": cell.objects, "T": cell.length}
        | {"paper": cell.paper}
        | {name: {"mean": mean, "error": error} for name, (mean, error) in cells.averages(found).items()}
        | {"videos": [asdict(x) for x in found]}
        for cell, found in results.items()
    ]
    content = {"about": dict(about), "rows": rows, "orders": orders(results)}
    return write(out / "table2.json", json.dumps(content, indent=1).encode())
