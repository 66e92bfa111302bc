"""What the site is made of besides docs/*.md: the reference, and pages that live elsewhere in the repository."""

import os
import re
from pathlib import Path, PurePosixPath
from textwrap import indent

import steelyard as sy

ROOT = Path(__file__).parent.parent
# Where they are in the repository, and on the site.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "RELEASING.md": "releasing.md",
    "benchmarks/README.md": "benchmarks.md",
    "src/steelyard/experiments/annealing/README.md": "experiments/annealing.md",
    "src/steelyard/experiments/mixture/README.md": "experiments/mixture.md",
    "src/steelyard/experiments/tracking/README.md": "experiments/tracking.md",
}
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)")
NAME = re.compile(r"`([A-Za-z_]+(?:\.[a-z_]+)?)`")
IN_PROSE = re.compile(r"(?<![\[`])`sy\.([A-Za-z_.]+)((?:\([^`]*\))?)`(?![\]`])")
SNIPPET = re.compile(r"<!-- (nested )?first snippet of (\S+) -->")
FENCED = re.compile(r"(^```.*?^```$|^#[^\n]*$)", re.DOTALL | re.MULTILINE)


def public_names() -> set[str]:
    """Return every public name, as users write it after `sy.`."""
    names = {name for name, x in vars(sy).items() if callable(x) and not name.startswith("_")}
    for module in (sy.testing, sy.objectives, sy.algorithms, sy.plot):
        short = module.__name__.split(".")[-1]
        names |= {f"{short}.{name}" for name, x in vars(module).items() if callable(x) and not name.startswith("_")}
    return names


def sections(reference: str) -> dict[str, list[str]]:
    """Return the public names that each section of docs/reference.md lists, in its order."""
    public, seen = public_names(), set[str]()
    found: dict[str, list[str]] = {}
    for section in reference.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        listed = [name for name in dict.fromkeys(NAME.findall(text)) if name in public and name not in seen]
        seen.update(listed)
        found[title.strip()] = listed
    return found


def reference_pages(reference: str) -> dict[str, str]:
    """Return the pages with all docstrings, one for each section of the reference."""
    pages = {}
    for title, names in sections(reference).items():
        entries = "\n\n".join(f"::: steelyard.{name}" for name in names)
        pages[f"reference/{title.lower().replace(' ', '-')}.md"] = f"# {title}\n\n{entries}\n"
    return pages


def with_snippets(markdown: str) -> str:
    """Put the first snippet of another page where a page asks for it, so that it is written and tested once."""

    def first(match: re.Match[str]) -> str:
        code = re.findall(r"```python\n.*?```", (ROOT / match[2]).read_text(), flags=re.DOTALL)[0]
        return indent(code, "    ") if match[1] else code

    return SNIPPET.sub(first, markdown)


def with_links_to_names(markdown: str, in_tables: bool) -> str:
    """Let names lead to their docstrings: `sy.name` in prose, and the plain name in the tables of the reference."""
    public = public_names()

    def prose(match: re.Match[str]) -> str:
        name = match[1]
        return f"[`sy.{name}{match[2]}`][steelyard.{name}]" if name in public else match[0]

    def plain(match: re.Match[str]) -> str:
        return f"[`{match[1]}`][steelyard.{match[1]}]" if match[1] in public else match[0]

    def row(line: str) -> str:
        first, bar, rest = line[1:].partition("|")
        return "|" + NAME.sub(plain, first) + bar + rest if line.startswith("|") else NAME.sub(plain, line)

    # Code and headings stay as they are: they are the odd parts.
    parts = FENCED.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = IN_PROSE.sub(prose, parts[i])
        if in_tables:
            parts[i] = "\n".join(map(row, parts[i].split("\n")))
    return "".join(parts)


def with_links_inside(markdown: str, origin: str, page: str) -> str:
    """Let links between files of the repository lead to pages of the site. What is not on it is no link."""

    def moved(match: re.Match[str]) -> str:
        text, link = match.groups()
        path, _, anchor = link.partition("#")
        if ":" in link or not path:
            return match[0]
        there = os.path.normpath(PurePosixPath(origin).parent / path)
        place = there.removeprefix("docs/") if there.startswith("docs/") else ELSEWHERE.get(there)
        if place is None:
            return text
        if place.startswith("tutorials/"):
            place = place.replace(".py", ".md")
        relative = os.path.relpath(place, PurePosixPath(page).parent)
        return f"[{text}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(moved, markdown)
