"""Evaluations, programs and remarks as HTML, for notebooks. No scripts, and every string of a user is escaped.

Text and lines have the colour of the page around them, so that they are readable on dark and on light ones.
"""

from html import escape

import numpy as np
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from steelyard.inspection.charts import broken_line
from steelyard.inspection.check import Remarks
from steelyard.inspection.display import OF_A_SCAN, cell, chosen, headline, names_of_columns, shape, standard_error
from steelyard.inspection.levels import Row, Steps, rows
from steelyard.inspection.show import tree
from steelyard.inspection.trouble import explained
from steelyard.language.programs import Program
from steelyard.output import hypertext
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

STYLE = """<style>
.steelyard { color: inherit; font-size: 0.9em; line-height: 1.4; overflow-x: auto; }
.steelyard table { border-collapse: collapse; margin: 0.5em 0; background: none; color: inherit; }
.steelyard tr { background: none; }
.steelyard th, .steelyard td { padding: 0.15em 0.7em; text-align: right; color: inherit; border: 0;
  border-bottom: 1px solid rgb(128 128 128 / 0.35); }
.steelyard th:first-child, .steelyard td:first-child, .steelyard .words :is(th, td) { text-align: left; }
.steelyard td { overflow-wrap: break-word; }
.steelyard td:last-child { min-width: 5em; }
.steelyard ul { list-style: none; margin: 0; padding-left: 1.2em; }
.steelyard li { border-left: 1px solid rgb(128 128 128 / 0.5); padding-left: 0.5em; }
.steelyard .role { opacity: 0.75; }
.steelyard .problem { border-left: 4px solid #d1343b; padding-left: 0.6em; }
.steelyard svg { vertical-align: middle; }
.steelyard .bad { stroke: #d1343b; stroke-width: 3; }
@media (prefers-color-scheme: dark) { .steelyard .bad { stroke: #ff7b81; } }
</style>"""
# So many points of a line can be told apart.
MOST_POINTS = 160
WIDTH, HEIGHT = 160, 24


@hypertext.register
def of_evaluation(evaluation: Evaluation) -> str:
    """Return an evaluation as HTML: one line, what went wrong, the variables, and a table of levels."""
    levels = rows(evaluation)
    parts = [f"<p><b>{escape(headline(evaluation))}</b></p>"]
    parts += [f"<p>{escape(line)}</p>" for line in (standard_error(evaluation), *chosen(evaluation)) if line]
    if problem := explained(evaluation):
        parts.append(f'<p class="problem">{escape(problem)}</p>')
    parts.append(_variables(evaluation))
    if levels:
        parts.append(_levels(levels, evaluation.particles))
    if any(row.steps for row in levels):
        parts.append(f'<p class="role">{escape(OF_A_SCAN)}</p>')
    return _block(parts)


@hypertext.register
def of_program(q: Program) -> str:
    """Return a program as HTML: its tree, whose parts can be folded."""
    lines: list[str] = ["<ul>"]
    waiting: list[Tree | str] = [tree(q)]
    # Not by recursion: programs may be nested deeper than Python's stack.
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            lines.append(item)
        elif item.children:
            lines.append(f"<li><details open><summary>{_label(item.label)}</summary><ul>")
            waiting += ["</ul></details></li>", *reversed(item.children)]
        else:
            lines.append(f"<li>{_label(item.label)}</li>")
    return _block([*lines, "</ul>"])


@hypertext.register
def of_remarks(remarks: Remarks) -> str:
    """Return remarks as HTML: a table of places and what to look at."""
    if not remarks:
        return _block(["<p>Nothing to remark.</p>"])
    table = _table(["remark", "where", "what"], [[escape(text) for text in remark] for remark in remarks])
    return _block([f'<div class="words">{table}</div>'])


def _block(parts: list[str]) -> str:
    return f'<div class="steelyard">{STYLE}\n' + "\n".join(parts) + "\n</div>"


def _table(heading: list[str], body: list[list[str]]) -> str:
    """Return a table; the cells are HTML, the heading is text."""
    lines = ["<table><tr>" + "".join(f"<th>{escape(name)}</th>" for name in heading) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>" for row in body]
    return "\n".join([*lines, "</table>"])


def _variables(evaluation: Evaluation) -> str:
    trace = evaluation.trace
    if not trace:
        return "<p>The trace is empty.</p>"
    some = [a for a in trace if trace.present(a) is not True]
    body = [[f"<code>{escape(a)}</code>", escape(shape(value))] for a, value in trace.items()]
    for row, a in zip(body, trace, strict=True):
        mask = trace.present(a)
        count = "traced" if is_traced(mask) else f"{np.asarray(mask).mean():.0%}"
        row += [count if a in some else "100%"] if some else []
    return _table(["variable", "type", *(["present"] if some else [])], body)


def _levels(levels: list[Row], particles: int) -> str:
    names = names_of_columns(levels)
    scans = any(row.steps for row in levels)
    more = [f"ESS of {particles}, step by step", "smallest at step"] if scans else []
    body = [
        [f"<code>{escape(row.label)}</code>", *(escape(cell(row, name)) for name in names), *_steps(row, particles)]
        for row in levels
    ]
    return _table(["level", *names, *more], [row[: 1 + len(names) + len(more)] for row in body])


def _steps(row: Row, particles: int) -> list[str]:
    if row.steps is None:
        return ["", ""]
    return [_line(row.steps, particles), escape(row.steps.where)]


def _line(steps: Steps, particles: int) -> str:
    """Return the effective sample sizes as a line from none to all particles, with marks below what is not finite."""
    groups = np.array_split(steps.ess, min(len(steps.ess), MOST_POINTS))
    y = np.array([group.min() for group in groups])
    x = np.linspace(2, WIDTH - 2, len(y)) if len(y) > 1 else np.array([WIDTH / 2])
    known = np.isfinite(y)
    height = HEIGHT - 2 - np.clip(np.where(known, y, 0) / particles, 0, 1) * (HEIGHT - 4)
    path = broken_line(x, height, known)
    bad = "".join(f"M{a:.1f} {HEIGHT - 1}v0" for a in x[~known])
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" fill="none" '
        f'stroke-linecap="round" stroke-width="1.5"><title>ESS at each of {len(steps.ess)} steps</title>'
        f'<path d="{path}" stroke="currentColor"/><path class="bad" d="{bad}"/></svg>'
    )


def _label(label: object) -> str:
    """Return the label of a tree: names of combinators bold, roles faint."""
    if not isinstance(label, Text):
        return escape(str(label))
    parts = []
    for text, style, *_ in label.render(Console(width=80)):
        words = escape(text)
        bold, dim = (style is not None and bool(x) for x in (getattr(style, "bold", 0), getattr(style, "dim", 0)))
        parts.append(f"<b>{words}</b>" if bold else f'<span class="role">{words}</span>' if dim else words)
    return f"<code>{''.join(parts).strip()}</code>"
