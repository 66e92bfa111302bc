"""Evaluations, programs and remarks as HTML: well formed, without scripts, with every string escaped."""

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.output import hypertext

KEY = jax.random.key(0)
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></div><b onclick='x'>",
    "&lt;i&gt; ' \" é ж",
    "]]>--><svg/onload=x>",
]
VOID = {"br", "hr", "img", "path"}


class Page(HTMLParser):
    """The tags, attributes and texts of a page, which must be nested as they should."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open += [tag] if tag not in VOID else []

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += data


def page(x: Any) -> Page:
    found = Page(x._repr_html_())
    assert found.tags <= {
        *("div", "style", "p", "b", "table", "tr", "th", "td", "code", "span"),
        *("ul", "li", "details", "summary", "svg", "title", "path"),
    }
    assert not [name for name in found.attributes if name.startswith("on") or name in ("href", "src", "style")]
    return found


def attack(s: sy.State) -> None:
    for name in ATTACKS:
        s.sample(name, dist.Normal(0.0, 1.0))


def test_addresses_and_names_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "__name__", ATTACKS[0])
    q = sy.rename(sy.propose(attack, lambda s: None), {a: f"{a}!" for a in ATTACKS})
    # At most one message of each remark quotes the address with backslashes.
    shown = {"evaluation": sy.evaluate(q, KEY, particles=2), "program": q}
    for what, x in shown.items():
        texts = page(x).texts
        assert not [a for a in ATTACKS if f"{a}!" not in texts], what
    texts = page(sy.check(sy.propose(attack, lambda s: None))).texts
    assert not [a for a in ATTACKS if repr(a) not in texts]


def test_what_went_wrong_is_escaped_too() -> None:
    out = jax.jit(lambda: sy.evaluate(lambda s: s.factor(ATTACKS[0], jnp.nan), KEY, particles=2))()
    assert f"The density at {ATTACKS[0]!r} is NaN in 2 of 2 particles" in page(out).texts


def test_a_scan_has_a_line() -> None:
    out = sy.evaluate(lambda s: s.factor("f", 0.5), KEY, particles=4)
    ess = np.array([4.0, 1.0, np.nan, 3.0])
    level = sy.LevelSummary("resample", log_z_increment=ess, ess=ess, max_weight=ess, ancestors=ess)
    scanned = replace(out, record=replace(out.record, levels=(level, jax.tree.map(lambda x: np.mean(x), level))))
    html = scanned._repr_html_()
    # All particles are the top of the line, and the step that is NaN is marked.
    assert 'd="M2.0 2.0L2.0 2.0L54.0 17.0M158.0 7.0L158.0 7.0"' in html
    assert 'class="bad" d="M106.0 23v0"' in html
    assert "3 of 4" in page(scanned).texts
    assert "svg" not in page(out).tags


def test_a_program_is_a_tree_that_folds() -> None:
    def model(s: sy.State) -> None: ...

    q: Any = sy.resample(sy.propose(model, model))
    found = page(q)
    assert "details" in found.tags
    assert "propose" in found.texts and "target: model" in found.texts
    deep: Any = model
    for _ in range(3000):
        deep = sy.resample(deep)
    assert hypertext(deep).count("<details") == 3000


def test_what_is_not_known_yet_is_no_mistake() -> None:
    shown: list[str] = []
    jax.jit(lambda key: shown.append(sy.evaluate(sy.resample(attack), key, particles=3)._repr_html_()))(KEY)
    assert "log Z traced" in shown[0]


def test_presence_is_shown_where_particles_differ() -> None:
    def sometimes(s: sy.State) -> None:
        flag = s.sample("flag", dist.Bernoulli(0.5))
        with s.when(flag == 1):
            s.sample("z", dist.Normal(0.0, 1.0))

    out = sy.evaluate(sometimes, KEY, particles=10)
    share = int(10 * out.trace["flag"].sum())
    assert f"{share}%" in page(out).texts and "100%" in page(out).texts


def test_nothing_to_remark_and_other_things() -> None:
    assert "Nothing to remark." in page(sy.check(sy.resample(attack))).texts
    assert hypertext("<b>") == "<pre>&#x27;&lt;b&gt;&#x27;</pre>"
