"""The site is complete and its tutorials are well formed. `make docs` builds it, and runs them."""

import json
import re
from pathlib import Path

import pytest

from tests.test_layers import LAYERS
from website import cache, house, pages
from website.cache import ROOT, tutorials
from website.cells import Tutorial, notebook

TUTORIALS = tutorials()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()


def on_the_site() -> set[str]:
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    made = {f"tutorials/{tutorial.name}.md" for tutorial, _ in TUTORIALS}
    return written | made | set(pages.ELSEWHERE.values()) | set(pages.reference_pages(REFERENCE))


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert sorted(re.findall(r"[\w/-]+\.md", nav)) == sorted(on_the_site())


def test_every_public_name_is_on_a_page_of_the_reference_once() -> None:
    listed = [name for names in pages.sections(REFERENCE).values() for name in names]
    assert sorted(listed) == sorted(pages.public_names())


@pytest.mark.parametrize(("tutorial", "script"), TUTORIALS, ids=[tutorial.name for tutorial, _ in TUTORIALS])
def test_a_tutorial_asks_a_question_draws_and_checks(tutorial: Tutorial, script: Path) -> None:
    code = "\n".join(cell.source for cell in tutorial.cells if cell.is_code)
    compile(script.read_text(), str(script), "exec")
    assert tutorial.cells[0].source.startswith(f"# {tutorial.title}\n\n*") and tutorial.question.endswith("?")
    assert re.search(r"^\s*assert ", code, re.MULTILINE), "no exact value to compare with"
    assert re.search(r"plt\.|sy\.plot\.", code), "no picture"
    for text in [cell.source for cell in tutorial.cells if not cell.is_code]:
        for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", text):
            assert (script.parent / link).exists(), link


def test_a_tutorial_is_a_notebook_too() -> None:
    def statements(text: str) -> list[str]:
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    for tutorial, script in TUTORIALS:
        cells = json.loads(notebook(tutorial))["cells"]
        code = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code")
        assert statements(code) == statements(script.read_text())


def test_a_tutorial_runs_again_when_anything_that_it_depends_on_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    inputs = ["website/cells.py", "website/execute.py", "website/figures.py", "src/steelyard/x.py", "requirements.lock"]
    paths = [tmp_path / name for name in ["docs/tutorials/one.py", *inputs]]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    seen = {cache.fingerprint(paths[0])}
    for number, path in enumerate(paths):
        path.write_text("changed")
        seen.add(cache.fingerprint(paths[0]))
        assert len(seen) == number + 2, path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[x](docs/programs.md#presence)", "[x](programs.md#presence)"),
        ("[x](benchmarks/README.md)", "[x](benchmarks.md)"),
        ("[x](docs/tutorials/01_first_steps.py)", "[x](tutorials/01_first_steps.md)"),
        ("see [the rules](src/steelyard/semantics/rules.py).", "see the rules."),
        ("[x](https://example.org) [y](#here)", "[x](https://example.org) [y](#here)"),
    ],
)
def test_links_of_the_repository_lead_to_pages(before: str, after: str) -> None:
    assert pages.with_links_inside(before, "CONTRIBUTING.md", "contributing.md") == after


def test_a_snippet_of_another_page_is_put_in() -> None:
    index = pages.with_snippets((ROOT / "docs" / "index.md").read_text())
    assert "sy.from_numpyro(schools)" in index and "first snippet of" not in index


def test_the_house_is_drawn_as_it_is_built() -> None:
    """The floors are the layers of tests/test_layers.py, from the top."""
    floors = [{name for room in floor.rooms for name in re.findall(r"\w+", room.name)} for floor in house.FLOORS]
    assert floors[::-1] == LAYERS
    assert house.drawn().count("<rect") == sum(len(floor.rooms) for floor in house.FLOORS)


def test_names_lead_to_their_docstrings() -> None:
    text = "## `sy.scan`\n\n`sy.scan(f, q, xs)`, `sy.nothing`, [`sy.scan`](x.md)\n\n```python\n`sy.scan`\n```\n"
    expected = text.replace("`sy.scan(f, q, xs)`", "[`sy.scan(f, q, xs)`][steelyard.scan]")
    assert pages.with_links_to_names(text, in_tables=False) == expected
