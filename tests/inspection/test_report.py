"""A page about a program and its particles: one file, no scripts, whatever the names and numbers."""

import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.inspection.charts import Axis, histogram, lines, range_of

KEY = jax.random.key(0)
NASTY = "<script>alert('&')</script>"


class Balance(HTMLParser):
    """Counts which elements are open, and which there were."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "link", "br", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag


def model(s: sy.State) -> None:
    z = s.sample("z", dist.Normal(3.0, 1.0))
    s.sample("k", dist.Poisson(2.0))
    s.sample(NASTY, dist.Normal(jnp.zeros(7), 1.0))
    with s.when(z > 3):
        s.sample("same", dist.Delta(1.0))
    s.factor("f", -z)


@pytest.fixture(scope="module")
def evaluated() -> tuple[Any, sy.Evaluation]:
    q = sy.scan(
        lambda q, x: sy.resample(sy.propose(sy.temper(model, x), q)), sy.temper(model, 0.1), jnp.linspace(0.2, 1, 5)
    )
    return q, sy.evaluate(q, KEY, particles=40)


def written(q: Any, out: sy.Evaluation, path: Path) -> str:
    assert sy.report(q, out, path) == path
    text = path.read_text()
    assert not Balance(text).open
    assert "script" not in Balance(text).seen and not re.search(r"(src|href)=\"(?!data:,\")", text)
    return text


def test_a_page_has_the_program_its_levels_and_its_variables(
    evaluated: tuple[Any, sy.Evaluation], tmp_path: Path
) -> None:
    q, out = evaluated
    text = written(q, out, tmp_path / "page.html")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert oct((tmp_path / "page.html").stat().st_mode)[-3:] == "644"
    for heading in (
        "The program",
        "Its levels, in order",
        "Step by step",
        "The variables",
        "log Z so far",
        ">k<",
        ">z<",
    ):
        assert heading in text
    # Two curves, two variables of one number each, one that some have, and four components of the long one.
    assert text.count("<figure>") == 2 + 3 + 4
    share = float(out.normalized_weights[np.asarray(out.trace["z"]) > 3].sum())
    assert f"present: {share:.0%} of the weight" in text
    mean = float(out.expect(lambda t: t["z"]))
    found = re.search(r"<h3>z</h3>.*?mean (\S+), standard", text)
    assert found and abs(float(found[1]) - mean) < 1e-3
    written(q, out, tmp_path / "page.html")


def test_other_evaluations(tmp_path: Path) -> None:
    def p(s: sy.State) -> None:
        s.factor("f", 0.5)

    assert "The trace is empty" in written(p, sy.evaluate(p, KEY, particles=1), tmp_path / "empty.html")
    q = sy.resample(sy.resample(p))
    out = sy.evaluate(q, KEY, particles=3)
    assert "Level by level" in written(q, out, tmp_path / "levels.html")
    spoiled = replace(out, log_weight=jnp.full(3, jnp.nan))
    assert "No result" in written(q, spoiled, tmp_path / "nan.html")
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), out)
    assert "several populations" in written(q, batch, tmp_path / "batch.html")

    def objects(s: sy.State) -> None:
        s.sample("ragged", dist.Normal(jnp.zeros(int(s.sample("k", dist.Bernoulli(0.5))) + 1), 1.0))

    out = sy.evaluate(objects, KEY, particles=6, engine="universal")
    assert "Not drawn: ragged" in written(objects, out, tmp_path / "universal.html")


def test_what_cannot_be_written_is_refused(evaluated: tuple[Any, sy.Evaluation], tmp_path: Path) -> None:
    q, out = evaluated
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none" / "page.html", tmp_path / "file" / "page.html", tmp_path):
        with pytest.raises(sy.ArgumentError, match="cannot be written"):
            sy.report(q, out, path)
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(sy.ArgumentError, match="not known yet"):
        jax.jit(lambda e: sy.report(q, e, tmp_path / "page.html"))(out)


def test_ticks_are_round_numbers_within_the_range() -> None:
    np.testing.assert_allclose(Axis(-0.3, 2.1, 0, 1).ticks(), [0.0, 1.0, 2.0])
    np.testing.assert_allclose(Axis(980.0, 1013.0, 0, 1).ticks(), [980, 990, 1000, 1010])
    assert not np.signbit(Axis(-1.0, 1.0, 0, 1).ticks()).tolist()[2]
    assert range_of(np.array([np.nan, np.inf])) is None and range_of(np.array([-1e308, 1e308])) is None
    assert range_of(np.array([5.0, 5.0])) == (4.5, 5.5) and range_of(np.zeros(3)) == (-0.5, 0.5)
    np.testing.assert_allclose(range_of(np.array([2.0, 2.4]), 1.0), (1.7, 2.7))


def test_curves_and_histograms_show_the_numbers() -> None:
    """Heights are read off the paths."""
    path = re.search(r'class="line0" d="(.*?)"', lines("t", [("a", np.array([0.0, 5.0, 10.0]))], (0.0, 10.0), "step"))
    assert path and re.findall(r"[\d.]+", path[1])[1::2] == ["164.0", "164.0", "87.0", "10.0"]
    gap = lines("t", [("a", np.array([1.0, np.nan, 3.0]))], None, "step")
    assert 'class="bad"' in gap and gap.count("M") >= 2
    long = np.ones(5000)
    long[1234] = 0.0
    assert " 164.0" in lines("t", [("a", long)], (0.0, 1.0), "step")
    drawn = histogram("t", np.array([1, 1, 3]), np.array([0.25, 0.25, 0.5]), discrete=True, caption="")
    heights = re.findall(r"V([\d.]+)H", drawn)
    assert len(heights) == 2 and heights[0] == heights[1]
    for values in (np.array([1e308, -1e308]), np.array([7.0]), np.zeros(0), np.array([1e-310, 2e-310]), np.arange(999)):
        weights = np.ones(len(values))
        picture = histogram("t", values, weights, discrete=values.dtype == int, caption="")
        assert "nan" not in picture and "inf" not in picture
