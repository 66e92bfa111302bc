"""Text for people on any stream: characters that its encoding lacks are written in ASCII, and nothing is lost."""

import io
import sys
from functools import singledispatch
from html import escape
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

ASCII = {"✓": "y", "✗": "n", "±": "+-", "→": "->", "●": "x", "′": "'", "…": "...", "─": "-"}
# The blocks of a sparkline: what has more ink is more.
ASCII |= dict(zip("▁▂▃▄▅▆▇█", "_.-=+*%#", strict=True))


def encodable(text: str, encoding: str | None) -> str:
    """Return the text with a spelling in ASCII of each character that the encoding lacks.

    Example:
        >>> from steelyard.output import encodable
        >>> encodable("v′ ± 1 ✓", "cp1252"), encodable("v′ ± 1 ✓ ж", "ascii"), encodable("v′", "utf-8")
        ("v' ± 1 y", "v' +- 1 y \\\\u0436", 'v′')
    """

    def fits(part: str) -> bool:
        try:
            part.encode(encoding or "utf-8")
        except UnicodeEncodeError:
            return False
        return True

    if fits(text):
        return text
    return "".join(c if fits(c) else ASCII.get(c, c.encode("ascii", "backslashreplace").decode()) for c in text)


def printable(text: str) -> str:
    """Return the text as standard output can print it: Python does not ask a `repr` where it will be printed."""
    return encodable(text, getattr(sys.stdout, "encoding", None))


def rendered(renderable: RenderableType, width: int) -> str:
    """Return what rich would print as plain text, for standard output."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_jupyter=False, legacy_windows=False)
    console.print(renderable)
    return printable("\n".join(line.rstrip() for line in stream.getvalue().splitlines()))


class Encodable:
    """Something that rich prints on any console, whatever its encoding."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else segment._replace(text=encodable(segment.text, options.encoding))


@singledispatch
def drawn(x: Any) -> RenderableType:
    """Return something for people to look at as what rich prints. `inspection/` says how, for each kind of thing."""
    return repr(x)


@singledispatch
def hypertext(x: Any) -> str:
    """Return something for people to look at as HTML. `inspection/` says how, for each kind of thing."""
    return f"<pre>{escape(repr(x))}</pre>"


def terminal(*, stderr: bool = False) -> Console:
    """Return a console for standard output or error. Brackets and colons in strings stand for themselves."""
    stream = sys.stderr if stderr else sys.stdout
    file: Any = None if stream is None else _Stream(stream)
    return _Console(file=file, stderr=stderr, markup=False, emoji=False)


class _Console(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        # Before tables are laid out: a spelling may be longer than the character.
        return super().render_str(encodable(text, self.encoding), **options)


class _Stream:
    """A stream that can write everything."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(encodable(text, getattr(self._stream, "encoding", None)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def progress_bar(console: Console) -> Progress:
    """Return a bar for long work: how much of it is done, how long the rest will take, and a description."""
    text = TextColumn("{task.description}", markup=False)
    return Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), text, console=console)
