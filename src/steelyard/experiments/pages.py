"""Pages that open from disk, with no network: text, tables and pictures in one file."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

STYLE = """
body { font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.first td { border-top: 2px solid #888; }
.good { color: #1b7a3d; } .worse { color: #b3261e; font-weight: 600; }
.wide { overflow-x: auto; } img { max-width: 100%; } pre { background: #f4f1ea; padding: 0.8rem; overflow-x: auto; }
"""


def page(title: str, sections: Sequence[str]) -> bytes:
    """Return a page with these sections of HTML."""
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # Without an icon of its own, a browser would ask for one.
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )
    # A command line in an unknown encoding holds characters that none has.
    return text.encode(errors="backslashreplace")


def picture(name: str, caption: str, path: Path) -> str:
    """Return a picture with a heading, PNG or GIF, as a part of the page."""
    kind, data = path.suffix.removeprefix("."), base64.b64encode(path.read_bytes()).decode()
    return (
        f"<h2>{escape(caption)}</h2>\n"
        f'<img id="{escape(name)}" alt="{escape(caption)}" src="data:image/{kind};base64,{data}">'
    )
