"""Figures for light and for dark pages, from one drawing."""

import re
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

# Lines and letters are drawn in a colour that nothing else has, and get that of the page afterwards.
FOREGROUND = "#010203"
PAGES = {"light": "#3d4852", "dark": "#d0d6de"}
COLOURS = ["#3b82c4", "#e0803a", "#36a27c", "#b565a7", "#c49a1a", "#d1575b", "#7a8793"]
STYLE = {
    "figure.figsize": (7.0, 3.2),
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": plt.cycler(color=COLOURS),
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "font.size": 10.0,
    "svg.hashsalt": "steelyard",
    **dict.fromkeys(
        ["text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"], FOREGROUND
    ),
    **{f"boxplot.{part}props.color": FOREGROUND for part in ("box", "whisker", "cap", "flier")},
    "boxplot.flierprops.markeredgecolor": FOREGROUND,
}


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write `name-light.svg` and `name-dark.svg`."""
    text = StringIO()
    figure.savefig(text, format="svg", transparent=True, dpi=150, metadata={"Date": None, "Creator": None})
    # An address in the header, which nothing reads; the pages have none.
    drawn = re.sub(r"<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)
    for page, colour in PAGES.items():
        (folder / f"{name}-{page}.svg").write_text(drawn.replace(FOREGROUND, colour))


def as_markdown(place: str, title: str) -> str:
    """Return both pictures; the site shows the one that fits the page."""
    return "\n".join(f"![{title}]({place}-{page}.svg#only-{page})" for page in PAGES)
