"""The house, drawn: the packages of steelyard as floors, each of which may use those below it."""

from dataclasses import dataclass, field
from html import escape

WIDTH, MARGIN, GAP, LINE = 760, 10, 8, 16


@dataclass(frozen=True)
class Room:
    """One package, or some modules, and what it is for, in lines."""

    name: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Floor:
    """Rooms side by side. The ideas are drawn in colour."""

    rooms: tuple[Room, ...]
    ideas: bool = field(default=False, kw_only=True)


FLOORS = (
    Floor((Room("cli", ("steelyard table1, table2, demo",)),)),
    Floor((Room("experiments/", ("annealing, tracking, mixture: the paper's results, with public names only",)),)),
    Floor(
        (
            Room("inspection/", ("show, check, print,", "HTML, plots")),
            Room("interop/", ("NumPyro's models,", "ArviZ, pandas")),
            Room("training/", ("a pure step, the loop,", "checkpoints")),
            Room("testing/", ("every outcome,", "exactly")),
        )
    ),
    Floor((Room("algorithms/", ("named methods: a few lines of combinators",)),)),
    Floor((Room("objectives/", ("pure functions of a Level",)),)),
    Floor((Room("engines/", ("who runs programs: vectorized, universal, at a trace; evaluate, predict",)),)),
    Floor((Room("compiler/", ("what makes them fast and changes no result; optimize=False turns it off",)),)),
    Floor((Room("semantics/", ("what programs mean: one function for each rule of the paper",)),), ideas=True),
    Floor((Room("estimates/", ("what weighted particles tell: expectations, filters, smoothing",)),)),
    Floor(
        (
            Room("language/", ("what users write: state, grammar, combinators",)),
            Room("particles/", ("weights, resampling, keys",)),
        ),
        ideas=True,
    ),
    Floor(
        (
            Room("distributions/", ("densities, supports, coordinates",)),
            Room("devices/", ("particles over several devices",)),
        )
    ),
    Floor((Room("arrays/", ("what JAX lacks",)), Room("maps, arguments", ("what everything shares",)))),
    Floor((Room("types, output, errors, ancestors, version"),)),
)


def drawn() -> str:
    """Return the house as SVG that has the colours of the page."""
    y, parts = 4, []
    for floor in FLOORS:
        height = 36 + LINE * max(len(room.lines) for room in floor.rooms)
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor.rooms) - 1)) / len(floor.rooms)
        for i, room in enumerate(floor.rooms):
            parts.append(_room(room, MARGIN + i * (width + GAP), y, width, height, floor.ideas))
        y += height + GAP
    label = "The packages of steelyard as floors of a house; each may use those below it"
    head = f'<svg viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{label}" font-size="14.5" fill="currentColor">'
    return "\n".join(['<div class="drawing">', head, *parts, "</svg>", "</div>"])


def _room(room: Room, x: float, y: float, width: float, height: float, idea: bool) -> str:
    colour, strength = ("var(--md-accent-fg-color)", 0.16) if idea else ("currentColor", 0.07)
    shape = f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" rx="6"'
    texts = [f'<text x="{x + 12:.1f}" y="{y + 23}" font-weight="600">{escape(room.name)}</text>']
    for number, line in enumerate(room.lines):
        place = f'x="{x + 12:.1f}" y="{y + 42 + LINE * number}"'
        texts.append(f'<text {place} font-size="12.5" opacity="0.8">{escape(line)}</text>')
    return f'{shape} fill="{colour}" fill-opacity="{strength}" stroke="{colour}" stroke-opacity="0.55"/>' + "".join(
        texts
    )
