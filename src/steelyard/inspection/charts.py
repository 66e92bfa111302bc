"""Small pictures as SVG, for pages: lines over steps, histograms. They take their colours from the page."""

from dataclasses import dataclass
from html import escape

import numpy as np

from steelyard.inspection.display import number

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 348, 10, 164
# So many points of a line can be told apart.
MOST_POINTS = 300
# The page has as many colours for lines.
COLOURS = 6
BINS = 30


@dataclass(frozen=True)
class Axis:
    """A range of numbers, drawn between two places."""

    low: float
    high: float
    start: float
    end: float

    def at(self, values: np.ndarray) -> np.ndarray:
        """Return where numbers are drawn."""
        share = (np.asarray(values, float) - self.low) / (self.high - self.low)
        return self.start + np.clip(share, 0, 1) * (self.end - self.start)

    def ticks(self) -> np.ndarray:
        """Return a few round numbers of the range."""
        rough = (self.high - self.low) / 4
        unit = 10.0 ** np.floor(np.log10(rough))
        step = unit * min((m for m in (1, 2, 5, 10) if m * unit >= rough), default=10)
        # A zero without a sign.
        return np.arange(np.ceil(self.low / step), np.floor(self.high / step) + 1) * step + 0.0


def broken_line(x: np.ndarray, y: np.ndarray, known: np.ndarray) -> str:
    """Return the path of a line through points that are known, with a gap where one is not."""
    starts = known & ~np.concatenate([[False], known[:-1]])
    # A step of no length is drawn as a point, because the ends of lines are round.
    return "".join(
        f"{'M' if start else 'L'}{a:.1f} {b:.1f}" + (f"L{a:.1f} {b:.1f}" if start else "")
        for a, b, start, shown in zip(x, y, starts, known, strict=True)
        if shown
    )


def range_of(values: np.ndarray, least: float = 0.0) -> tuple[float, float] | None:
    """Return the smallest and the largest finite number, at least so far apart; None, if there is none.

    None as well, if their distance is more than numbers can tell. Those that hardly differ get a range around them.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    size = max(abs(low), abs(high))
    if high - low <= 1e-6 * size or high == low:
        least = max(least, 0.2 * size, 1e-300) if size else 1.0
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    return (low, high) if np.isfinite(high - low) else None


def lines(title: str, curves: list[tuple[str, np.ndarray]], bounds: tuple[float, float] | None, x_label: str) -> str:
    """Return curves over steps as a figure; what is not finite is left out, and marked at the foot.

    Args:
        title: what they show.
        curves: for each its name and its numbers, the first one that of step 1.
        bounds: the lowest and the highest number of the axis; those of the curves, if None, which are logarithms.
        x_label: what is on the horizontal axis.
    """
    # A change of one in log Z is worth a look, and less is noise.
    bounds = bounds or range_of(np.concatenate([y for _, y in curves]), 1.0) or (0.0, 1.0)
    longest = max(len(y) for _, y in curves)
    x_axis, y_axis = Axis(0.5, longest + 0.5, LEFT, RIGHT), Axis(*bounds, BOTTOM, TOP)
    parts = [_frame(x_axis, y_axis, whole_numbers=True)]
    parts += [_curve(y, x_axis, y_axis, i % COLOURS) for i, (_, y) in enumerate(curves)]
    keys = "".join(
        f'<span class="key"><i class="fill{i % COLOURS}"></i><code>{escape(name)}</code></span>'
        for i, (name, _) in enumerate(curves)
    )
    return _figure(title, "".join(parts), f"{keys} <small>by {escape(x_label)}</small>")


def histogram(title: str, values: np.ndarray, weights: np.ndarray, *, discrete: bool, caption: str) -> str:
    """Return weighted numbers as a figure: the share of each whole number, or the density."""
    bounds = range_of(values) if len(values) else None
    if bounds is None:
        return _figure(title, _note("nothing to draw" if not len(values) else "too far apart to draw"), caption)
    if discrete and bounds[1] - bounds[0] <= 4 * BINS:
        places, which = np.unique(values, return_inverse=True)
        heights, left, right = np.bincount(which, weights), places - 0.4, places + 0.4
        bounds = float(places.min()) - 0.6, float(places.max()) + 0.6
    else:
        heights, edges = np.histogram(values.astype(float), BINS, bounds, weights=weights)
        left, right = edges[:-1], edges[1:]
    x_axis, y_axis = Axis(*bounds, LEFT, RIGHT), Axis(0.0, 1.05 * float(heights.max()), BOTTOM, TOP)
    boxes = zip(x_axis.at(left), x_axis.at(right), y_axis.at(heights), strict=True)
    drawn = "".join(f"M{a:.1f} {BOTTOM}V{h:.1f}H{b:.1f}V{BOTTOM}Z" for a, b, h in boxes if h < BOTTOM)
    frame = _frame(x_axis, None, whole_numbers=discrete)
    return _figure(title, f'{frame}<path class="fill0" d="{drawn}"/>', caption)


def bar(share: float) -> str:
    """Return a part of a whole as a bar."""
    known = np.isfinite(share)
    inner = f'<span style="width:{np.clip(share, 0, 1):.1%}"></span>' if known else ""
    return f'<div class="{"bar" if known else "bar unknown"}">{inner}</div>'


def _curve(y: np.ndarray, x_axis: Axis, y_axis: Axis, colour: int) -> str:
    places = np.arange(1, len(y) + 1)
    if len(y) > MOST_POINTS:
        # The smallest of each few: what goes wrong in a single step must be seen.
        groups = np.array_split(np.arange(len(y)), MOST_POINTS)
        places = np.array([g[np.argmin(y[g])] + 1 for g in groups])
        y = y[places - 1]
    known = np.isfinite(y)
    x, height = x_axis.at(places), y_axis.at(np.where(known, y, y_axis.low))
    path = broken_line(x, height, known)
    bad = "".join(f"M{a:.1f} {BOTTOM - 2}v0" for a in x[~known])
    return f'<path class="line{colour}" d="{path}"/>' + (f'<path class="bad" d="{bad}"/>' if bad else "")


def _frame(x_axis: Axis, y_axis: Axis | None, *, whole_numbers: bool) -> str:
    ticks = x_axis.ticks()
    ticks = ticks[ticks == np.round(ticks)] if whole_numbers else ticks
    grid, texts = [f"M{LEFT} {BOTTOM}H{RIGHT}"], []
    for x, place in zip(ticks, x_axis.at(ticks), strict=True):
        grid.append(f"M{place:.1f} {BOTTOM}v4")
        texts.append(f'<text x="{place:.1f}" y="{BOTTOM + 17}" text-anchor="middle">{_tick(x, ticks)}</text>')
    if y_axis is not None:
        for y, place in zip(ys := y_axis.ticks(), y_axis.at(ys), strict=True):
            grid.append(f"M{LEFT} {place:.1f}H{RIGHT}")
            texts.append(f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{_tick(y, ys)}</text>')
    return f'<path class="grid" d="{"".join(grid)}"/>{"".join(texts)}'


def _tick(x: float, ticks: np.ndarray) -> str:
    """Return a number with as many digits as tell it from its neighbours."""
    digits = 1 if len(ticks) < 2 else int(np.clip(np.ceil(np.log10(np.abs(ticks).max() / (ticks[1] - ticks[0]))), 0, 6))
    text = f"{x:.{digits + 1}g}"
    return text if len(text) <= 8 and "e" not in text else number(x)


def _note(text: str) -> str:
    return f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">{escape(text)}</text>'


def _figure(title: str, drawing: str, caption: str) -> str:
    """Return a figure; title and drawing come first, the caption is HTML."""
    return (
        f'<figure><h3>{escape(title)}</h3><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(title)}</title>{drawing}</svg><figcaption>{caption}</figcaption></figure>"
    )
