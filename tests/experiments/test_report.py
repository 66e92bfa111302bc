"""The report, read as a browser would read it."""

import base64
from html.parser import HTMLParser

import pytest

from steelyard.experiments.annealing import table
from steelyard.experiments.annealing.report import CAPTIONS
from tests.experiments.conftest import COMMAND, Made

EMPTY = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Collects what the page consists of; complains of elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def page(made: Made) -> Page:
    return Page((made.out / "report.html").read_text())


def test_every_element_is_closed(page: Page) -> None:
    assert not page.open


def test_the_table_is_there(page: Page, made: Made) -> None:
    assert ("table", {"id": "table1"}) in page.elements
    tags = [tag for tag, _ in page.elements]
    assert tags.count("td") == len(made.results) * len(table.HEADINGS)
    for result in made.results:
        assert set(filter(None, table.texts(table.Row.of(result)))) <= set(page.words)


def test_every_picture_is_there(page: Page, made: Made) -> None:
    pictures = {str(a["id"]): str(a["src"]) for tag, a in page.elements if tag == "img"}
    assert set(pictures) == set(CAPTIONS)
    for name, source in pictures.items():
        kind, data = source.split(",", 1)
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (made.out / f"{name}.png").read_bytes()


def test_the_diagram_shows_the_ess_of_every_level(page: Page, made: Made) -> None:
    assert [a for tag, a in page.elements if tag == "svg" and a["id"] == "diagram"]
    levels = [tag for tag, a in page.elements if tag == "g" and a.get("class") == "level"]
    assert len(levels) == made.results[1].cell.densities
    for ess in made.results[1].resampled.level_ess.mean(axis=0):
        assert f"ESS {ess:.0f}, resampled" in page.words


def test_the_command_and_the_versions_are_there(page: Page) -> None:
    assert COMMAND in "".join(page.words)
    assert any("numpyro" in words for words in page.words)


def test_nothing_is_loaded_from_elsewhere(page: Page, made: Made) -> None:
    for _, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "data", "action"):
            assert str(attributes.get(name, "data:")).startswith("data:")
    text = (made.out / "report.html").read_text()
    assert "//" not in "".join(part for part in text.split('"') if "base64" not in part)
    assert "url(" not in text.replace("url(#tip)", "")
