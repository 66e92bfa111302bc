"""`report`: a program and what it gave, on one page that opens from disk."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from html import escape
from os import PathLike
from pathlib import Path

import numpy as np

from steelyard.errors import ArgumentError
from steelyard.inspection.charts import COLOURS, bar, histogram, lines
from steelyard.inspection.display import number
from steelyard.inspection.levels import Row, rows
from steelyard.inspection.plot.panels import Column, columns_of
from steelyard.inspection.trouble import explained
from steelyard.language.describe import describe
from steelyard.language.programs import Programmable, program
from steelyard.output import hypertext
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

# So many pictures are still looked at; of an array, so many components.
MOST_MARGINALS, COMPONENTS = 24, 4
STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1d1d1f; --faint: #6b6b70; --line: #d8d8dc; --card: #f5f5f7;
  --c0: #1f6fb4; --c1: #b4541f; --c2: #2a7f62; --c3: #8a3fa0; --c4: #8a6d00; --c5: #b01f4c; --bad: #d1343b; }
@media (prefers-color-scheme: dark) { :root { --ground: #17181b; --ink: #ececef; --faint: #a0a0a8; --line: #3a3b40;
  --card: #222327; --c0: #6fb5f0; --c1: #f0a070; --c2: #66c9a3; --c3: #d398e6; --c4: #dcc04a; --c5: #f58bac;
  --bad: #ff7b81; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.35rem; line-height: 1.25; margin: 0.5rem 0 1rem; } h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 0.9rem; margin: 0 0 0.3rem; } code { font-family: ui-monospace, monospace; font-size: 0.9em; }
figure { margin: 0; padding: 0.7rem; background: var(--card); border-radius: 8px; min-width: 0; }
figcaption { font-size: 0.8rem; color: var(--faint); } figure svg { width: 100%; height: auto; display: block; }
svg text { font-size: 11px; fill: var(--faint); } .grid { stroke: var(--line); fill: none; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
.key { margin-right: 0.8rem; } .key i { display: inline-block; width: 0.7em; height: 0.7em; margin-right: 0.3em; }
.flow { list-style: none; margin: 0; padding: 0; display: grid; gap: 1.6rem 1.6rem;
  grid-template-columns: repeat(auto-fill, minmax(min(15rem, 100%), 1fr)); }
.flow li { position: relative; padding: 0.6rem 0.8rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; font-size: 0.85rem; }
.flow li + li::before { content: "\\2192"; position: absolute; left: -1.35rem; top: 0.6rem; color: var(--faint); }
@media (max-width: 36rem) { .flow li + li::before { content: "\\2193"; left: 50%; top: -1.5rem; } }
.bar { height: 0.7rem; background: var(--line); border-radius: 3px; margin: 0.4rem 0 0.2rem; overflow: hidden; }
.bar span { display: block; height: 100%; background: var(--c2); } .unknown { background: var(--bad); }
[class^="line"] { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
.bad { stroke: var(--bad); stroke-width: 5; stroke-linecap: round; }
.line1 { stroke-dasharray: 7 5; } .line2 { stroke-dasharray: 1 6; } .line4 { stroke-dasharray: 7 5 1 5; }
.about { color: var(--faint); font-size: 0.85rem; }
""" + "".join(
    f".line{i} {{ stroke: var(--c{i}); }} .fill{i} {{ fill: var(--c{i}); background: var(--c{i}); }}\n"
    for i in range(COLOURS)
)


def report(q: Programmable, out: Evaluation, path: str | PathLike[str]) -> Path:
    """Write a page about a program and what evaluating it gave, to open in a browser.

    It shows the tree of the program; its levels in order, with the effective sample size of each; ESS and log Z level
    by level, of scans step by step; and a histogram of each variable, with the weights of the particles. It is one
    file, without scripts, which loads nothing, fits a phone, and follows the reader's choice of dark or light.

    Args:
        q: the program that was evaluated.
        out: what `evaluate` returned; of a batch, the variables are not drawn.
        path: the file to write. It is there as a whole or not at all; an older one is replaced.

    Returns:
        The path.

    Raises:
        ArgumentError: the file cannot be written; or the particles are not known yet, inside of `jit`.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy, tempfile
        >>> def model(s, x):
        ...     z = s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.observe("x", dist.Normal(z, 0.5), x)
        >>> def guide(s, x): s.sample("z", dist.Normal(0.8 * x, 0.6))
        >>> q = sy.propose(model, guide)
        >>> out = sy.evaluate(q, jax.random.key(0), 1.3, particles=1000)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sy.report(q, out, f"{folder}/posterior.html").name
        'posterior.html'
    """
    if is_traced(out.log_weight):
        raise ArgumentError(
            "report: inside of jit, vmap or grad the particles are not known yet. Call it on what these return."
        )
    q = program(q)
    levels = rows(out)
    sections = [
        f"<h1>{escape(describe(q))}</h1>",
        hypertext(out),
        "<h2>The program</h2>",
        hypertext(q),
        *_flow(levels, out.particles),
        *_curves(levels, out.particles),
        *_marginals(out),
    ]
    return _write(Path(path).absolute(), _page(describe(q), sections))


def _flow(levels: list[Row], particles: int) -> list[str]:
    if not levels:
        return []
    boxes = []
    for row in levels:
        ess, increment = row.numbers["ESS"], row.numbers["log Z increment"]
        ess, increment = (np.nan if x is None else x for x in (ess, increment))
        where = f" at the worst step, {row.steps.where}" if row.steps else ""
        boxes.append(
            f"<li><code>{escape(row.label)}</code>{bar(ess / particles)}"
            f"ESS {number(ess)} of {particles}{escape(where)}<br>log Z {increment:+.4g}</li>"
        )
    return ["<h2>Its levels, in order</h2>", f'<ol class="flow">{"".join(boxes)}</ol>']


def _curves(levels: list[Row], particles: int) -> list[str]:
    scans = [(row.label, row.steps) for row in levels if row.steps is not None]
    if scans:
        ess = [(label, steps.ess) for label, steps in scans]
        # Levels that cannot change log Z, as a resample, would draw a line at zero.
        log_z = [(label, steps.increments.cumsum()) for label, steps in scans if np.any(steps.increments)]
        x_label = "step"
    elif len(levels) > 1:
        ess = [("ESS", _known(levels, "ESS"))]
        log_z = [("log Z", _known(levels, "log Z increment").cumsum())]
        x_label = "level"
    else:
        return []
    figures = [lines(f"ESS of {particles} particles", ess, (0.0, 1.05 * particles), x_label)]
    if log_z:
        figures.append(lines("log Z so far", log_z, None, x_label))
    return [f"<h2>{x_label.capitalize()} by {x_label}</h2>", f'<div class="figures">{"".join(figures)}</div>']


def _known(levels: list[Row], name: str) -> np.ndarray:
    return np.array([np.nan if row.numbers[name] is None else row.numbers[name] for row in levels])


def _marginals(out: Evaluation) -> list[str]:
    if np.ndim(out.log_weight) != 1:
        return ["<p>These are several populations. A report of one of them shows its variables.</p>"]
    if explained(out) or not out.trace:
        return []
    columns: list[Column] = []
    missing: list[str] = []
    for a in out.trace:
        try:
            columns += columns_of(out, [a], COMPONENTS)
        except ArgumentError:
            missing.append(f"{a} (no real numbers)")
    missing += [column.name for column in columns[MOST_MARGINALS:]]
    figures = "".join(map(_marginal, columns[:MOST_MARGINALS]))
    rest = [f'<p class="about">Not drawn: {escape(", ".join(missing))}.</p>'] if missing else []
    about = f'<p class="about">With the weights of the particles; of an array, the first {COMPONENTS} numbers.</p>'
    return ["<h2>The variables</h2>", f'<div class="figures">{figures}</div>', about, *rest]


def _marginal(column: Column) -> str:
    values, weights = column.values[column.drawn], column.weights[column.drawn]
    caption = [column.title] if column.title else []
    if len(values):
        share = weights / weights.sum()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(share @ values)
            spread = float(np.sqrt(share @ (values - mean) ** 2))
        caption.insert(0, f"mean {number(mean)}, standard deviation {number(spread)}")
    return histogram(column.name, values, weights, discrete=column.discrete, caption=escape("; ".join(caption)))


def _page(title: str, sections: list[str]) -> bytes:
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Without an icon of its own, a browser would ask for one.
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )
    # Addresses may hold characters that no encoding has.
    return text.encode(errors="backslashreplace")


def _write(path: Path, content: bytes) -> Path:
    """Write a file such that it is there as a whole or not at all."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:50]}.", delete=False) as file:
            temporary = file.name
            file.write(content)
        # As files that are opened to write, and not for the owner alone, as temporary ones.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise ArgumentError(f"report: {path} cannot be written ({error}). Choose another file.") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
    return path
