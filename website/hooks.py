"""The hooks of MkDocs: pages that are made at build time, and links between them."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from website import cells, house, pages
from website.cache import ROOT, executed, tutorials
from website.figures import as_markdown

GALLERY, FILES, HOUSE = "<!-- gallery -->", "<!-- files -->", "<!-- house -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, the tutorials with their figures, and pages that live elsewhere in the repository."""

    def add(place: str, **source: Any) -> None:
        files.append(File.generated(config, place, **source))

    for place, content in pages.reference_pages((ROOT / "docs" / "reference.md").read_text()).items():
        add(place, content=content)
    for origin, place in pages.ELSEWHERE.items():
        add(place, content=(ROOT / origin).read_text())
    for tutorial, script in tutorials():
        folder = executed(script)
        add(f"tutorials/{tutorial.name}.md", content=(folder / "page.md").read_text())
        add(f"tutorials/{tutorial.name}.ipynb", content=cells.notebook(tutorial))
        for figure in sorted(folder.glob("*.svg")):
            add(f"tutorials/{figure.name}", abs_src_path=str(figure))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Mend the links of a page, and put the gallery into the front page."""
    place = page.file.src_uri
    if place.startswith("reference/"):
        return markdown
    origin = next((origin for origin, there in pages.ELSEWHERE.items() if there == place), f"docs/{place}")
    markdown = pages.with_links_inside(pages.with_snippets(markdown), origin, place)
    markdown = pages.with_links_to_names(markdown, in_tables=place == "reference.md")
    name = Path(place).stem
    markdown = markdown.replace(FILES, f"[Notebook]({name}.ipynb) · [script]({name}.py) · ")
    markdown = markdown.replace(HOUSE, house.drawn())
    return markdown.replace(GALLERY, gallery(place)) if GALLERY in markdown else markdown


def gallery(page: str) -> str:
    """Return a card for each tutorial: its first figure, its title, its question."""
    folder = "" if page.startswith("tutorials/") else "tutorials/"
    cards = []
    for tutorial, _ in tutorials():
        place = f"{folder}{tutorial.name}"
        picture = as_markdown(f"{place}-1", tutorial.title).replace("\n", "\n    ")
        cards.append(f"-   {picture}\n\n    [**{tutorial.title}**]({place}.md)\n\n    {tutorial.question}\n")
    return '<div class="grid cards gallery" markdown>\n\n' + "\n".join(cards) + "\n</div>"
