"""Every snippet in the README and the documentation runs, and every public name is documented."""

import re
from pathlib import Path

import jax
import pytest

import steelyard as sy

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    # As users run it: NumPyro broadcasts the parameters of an event against rows of data.
    with jax.numpy_rank_promotion("allow"):
        exec("\n".join(snippets), {})


def test_every_public_name_has_an_entry_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    names = [name for name, x in vars(sy).items() if callable(x) and not name.startswith("_")]
    for module in (sy.testing, sy.objectives, sy.algorithms, sy.plot):
        short = module.__name__.split(".")[-1]
        names += [f"{short}.{name}" for name, x in vars(module).items() if callable(x) and not name.startswith("_")]
    assert not [name for name in names if f"`{name}`" not in reference]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def test_eight_schools_are_few_lines() -> None:
    """From a NumPyro model to a plotted posterior."""
    first = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "numpyro.md").read_text(), flags=re.DOTALL)[0]
    assert "numpyro.sample" in first and "sy.plot" in first
    assert len([line for line in first.splitlines() if line]) <= 15
