"""Runs one tutorial in a process of its own: writes what each cell prints, returns and draws."""

import ast
import io
import linecache
import sys
import time
from contextlib import redirect_stdout
from html import escape
from pathlib import Path
from typing import Any

import matplotlib

from website import figures
from website.cells import Cell, Tutorial, read


def main(script: Path, folder: Path) -> None:
    """Execute the script; the page is written last."""
    matplotlib.use("Agg")
    matplotlib.rcParams.update(figures.STYLE)
    tutorial = read(script)
    start = time.monotonic()
    body = list(pages(tutorial, script, folder))
    seconds = time.monotonic() - start
    (folder / "page.md").write_text("\n\n".join([_with_head(body[0], seconds), *body[1:]]) + "\n")


def _with_head(first: str, seconds: float) -> str:
    title, question, rest = (*first.split("\n\n", 2), "")[:3]
    return "\n\n".join([title, question, f"<!-- files -->ran in {seconds:.0f} s", rest])


def pages(tutorial: Tutorial, script: Path, folder: Path) -> Any:
    """Yield the Markdown of each cell with what came of it."""
    from matplotlib import pyplot as plt

    namespace: dict[str, Any] = {"__name__": "__main__"}
    drawn = 0
    for cell in tutorial.cells:
        if not cell.is_code:
            yield cell.source
            continue
        printed, value = run(cell, script, namespace)
        parts = [f"```python\n{cell.source}\n```"]
        if printed:
            parts.append(_text(printed))
        if value is not None:
            parts.append(_shown(value))
        for number in plt.get_fignums():
            figure = plt.figure(number)
            titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
            drawn += 1
            figures.save(figure, folder, f"{tutorial.name}-{drawn}")
            parts.append(figures.as_markdown(f"{tutorial.name}-{drawn}", "; ".join(titles) or tutorial.title))
        plt.close("all")
        yield "\n\n".join(parts)


def run(cell: Cell, script: Path, namespace: dict[str, Any]) -> tuple[str, Any]:
    """Return what a cell prints, and the value of its last line where that is an expression."""
    # Lines keep the numbers that they have in the script, for error messages and for `inspect`.
    source = "\n" * cell.line + cell.source
    name = f"{script.name}:{cell.line}"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    # What plotting functions return is of no interest: the figure is shown.
    return printed.getvalue(), None if _is_drawing(value) else value


def _is_drawing(value: Any) -> bool:
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    return any(type(item).__module__.startswith("matplotlib") for item in items)


def _shown(value: Any) -> str:
    if hasattr(value, "_repr_html_"):
        return f'<div class="output">{value._repr_html_()}</div>'
    return _text(repr(value))


def _text(text: str) -> str:
    return f'<pre class="output">{escape(text.rstrip())}</pre>'


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
