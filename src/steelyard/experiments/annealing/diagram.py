"""The inference program drawn as a diagram, with the effective sample size of each level on it, as SVG."""

import numpy as np

from steelyard.experiments.annealing.cells import Result
from steelyard.experiments.annealing.figures import first

WIDTH, HEIGHT, GAP, LEFT, TOP = 150, 74, 46, 20, 54


def svg(result: Result) -> str:
    """Draw the levels of a cell from left to right.

    Args:
        result: the cell.

    Returns:
        An SVG element: a box for the initial proposal and one for every level, with the part of the samples that is
        effective, averaged over seeds, as a bar at its foot; with resampling at test time and without.
    """
    cell = result.cell
    betas = np.asarray(first(result).schedule(learned=False))
    plain, resampled = (np.mean(x.level_ess, axis=0) for x in (result.plain, result.resampled))
    boxes = [_box(0, "initial proposal", "Normal(0, 5)", [])]
    for k in range(1, cell.densities):
        ess = [("resampled", float(resampled[k - 1]), "#2a7f62"), ("not resampled", float(plain[k - 1]), "#8899aa")]
        boxes.append(_arrow(k))
        boxes.append(_box(k, f"propose, level {k}", f"β = {betas[k]:.3g}", ess, cell.samples))
    width = 2 * LEFT + cell.densities * WIDTH + (cell.densities - 1) * GAP
    height = TOP + HEIGHT + 118
    return (
        f'<svg id="diagram" role="img" viewBox="0 0 {width} {height}" width="100%" '
        'font-family="sans-serif">'
        f"<title>The inference program of {cell.method} with {cell.densities} densities</title>"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker></defs>'
        f'<text x="{LEFT}" y="22" font-size="14">q_k = propose(extend(p_k, prev(reverse_k)), '
        f"move(forward_k, resample(q_k-1))): ESS of {cell.samples:,} samples after each level</text>"
        f"{''.join(boxes)}</svg>"
    )


def _box(k: int, title: str, subtitle: str, ess: list[tuple[str, float, str]], samples: int = 1) -> str:
    x = LEFT + k * (WIDTH + GAP)
    parts = [
        f'<rect x="{x}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#f4f1ea" stroke="#444"/>',
        _text(x + WIDTH / 2, TOP + 30, title, 14),
        _text(x + WIDTH / 2, TOP + 52, subtitle, 13),
    ]
    for number, (label, value, color) in enumerate(ess):
        y = TOP + HEIGHT + 12 + 46 * number
        filled = WIDTH * min(max(value / samples, 0.0), 1.0)
        parts += [
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="14" fill="#e6e6e6"/>',
            f'<rect x="{x}" y="{y}" width="{filled:.1f}" height="14" fill="{color}"/>',
            _text(x + WIDTH / 2, y + 30, f"ESS {value:.0f}, {label}", 12),
        ]
    return f'<g class="level">{"".join(parts)}</g>'


def _arrow(k: int) -> str:
    end, y = LEFT + k * (WIDTH + GAP), TOP + HEIGHT / 2
    line = f'<path d="M{end - GAP + 2} {y} H{end - 2}" stroke="#444" fill="none" marker-end="url(#tip)"/>'
    return line + _text(end - GAP / 2, TOP - 8, "resample, move", 10)


def _text(x: float, y: float, text: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="middle">{text}</text>'
