"""What is printed, on streams that lack characters, and with addresses that look like markup."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import optax
import pytest
from rich.console import Console
from rich.table import Table

import steelyard as sy
from steelyard.output import encodable, terminal

# Markup, a closing tag, an emoji, an escape, an index, and letters that few encodings have.
NAMES = ["z[t]", "a[/b]", "x:cat:y", "c\\[red]", "d[0]", "ж", "é"]
EXPECTED = {
    "utf-8": NAMES,
    "ascii": [*NAMES[:5], "\\u0436", "\\xe9"],
    "cp1252": [*NAMES[:5], "\\u0436", "é"],
}


def start(s: sy.State) -> Any:
    return jnp.stack([s.sample(name, dist.Normal(0.0, 1.0)) for name in NAMES])


def kernel(s: sy.State, x: Any) -> Any:
    return x.at[0].set(s.sample("z[t]", dist.Normal(x[0], 1.0)))


def renamed() -> Any:
    return sy.rename(sy.move(kernel, start), {name: f"new {name}" for name in NAMES})


class Stream(io.TextIOWrapper):
    """A stream of an encoding that is strict about it."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="strict")

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # pyright: ignore


# Not a fixture: pytest sets standard output anew before the test itself.
@contextmanager
def standard_streams(encoding: str) -> Iterator[Stream]:
    with redirect_stdout(Stream(encoding)) as stream, redirect_stderr(stream):
        yield stream


encodings = pytest.mark.parametrize("encoding", EXPECTED)


def evaluation() -> sy.Evaluation:
    return sy.evaluate(sy.move(kernel, sy.propose(start, start)), jax.random.key(0), particles=2)


def dependencies() -> sy.Dependencies:
    return sy.dependencies(start)


def wide(stream: Any) -> Console:
    return Console(file=stream, width=250)


PRINTS = {
    "show": lambda: sy.show(renamed()),
    "show on a console": lambda: sy.show(renamed(), console=wide(sys.stdout)),
    "an evaluation": lambda: print(evaluation()),
    "an evaluation on a console": lambda: wide(sys.stdout).print(evaluation()),
    "a trace": lambda: print(evaluation().trace),
    "dependencies": lambda: print(dependencies()),
    "dependencies on a console": lambda: wide(sys.stdout).print(dependencies()),
    "addresses": lambda: print(sy.addresses(sy.move(kernel, start))),
    "check": lambda: print(sy.check(sy.propose(start, lambda s: None))),
}


@encodings
@pytest.mark.parametrize("what", PRINTS)
def test_addresses_are_printed_as_they_are(what: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    with standard_streams(encoding) as stream:
        PRINTS[what]()
    printed = stream.text()
    for name in EXPECTED[encoding]:
        assert name in printed.replace("\\\\", "\\"), printed
    # The mark of previous versions, and the dots of a table.
    if what in ("an evaluation", "an evaluation on a console", "addresses"):
        assert ("z[t]′" if encoding == "utf-8" else "z[t]'") in printed
    if what.startswith("dependencies"):
        assert (printed + " ").replace("\n", " ").count(" ● " if encoding == "utf-8" else " x ") == len(NAMES)


def test_a_level_is_labelled_with_the_name_of_its_target_as_it_is() -> None:
    start.__name__, before = "start[bold]", start.__name__
    try:
        assert "propose(start[bold])" in repr(sy.evaluate(sy.propose(start, start), jax.random.key(0), particles=2))
    finally:
        start.__name__ = before


@encodings
def test_progress_is_reported_on_any_stream(encoding: str) -> None:
    def program(m: Any) -> Any:
        return sy.algorithms.svi(start, lambda s: s.sample("z[t]", dist.Normal(m, 1.0)))

    with standard_streams(encoding) as stream:
        sy.train(program, 0.0, optimizer=optax.sgd(0.1), steps=2, key=jax.random.key(0), particles=2)
    assert "step 2 of 2: loss" in stream.text()


@encodings
def test_a_terminal_prints_strings_as_they_are_and_tables_stay_in_line(encoding: str) -> None:
    table = Table(box=None)
    table.add_column("a", justify="right")
    table.add_column("b")
    table.add_row("1 ± 2", "|")
    table.add_row("x", "|")
    with standard_streams(encoding) as stream:
        terminal().print("[red]:cat:", "✓ ✗ \udce9")
        terminal().print(table)
    first, *lines = stream.text().splitlines()
    assert first == ("[red]:cat: ✓ ✗ \\udce9" if encoding == "utf-8" else "[red]:cat: y n \\udce9")
    assert len({line.index("|") for line in lines if "|" in line}) == 1


def test_only_what_an_encoding_lacks_is_spelled_otherwise() -> None:
    assert encodable("± ✓", "utf-8") == encodable("± ✓", None) == "± ✓"
    assert encodable("± ✓", "cp1252") == "± y"
    assert encodable("", "ascii") == ""


def test_without_standard_output_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    sy.show(start)
    assert "Evaluation of 2 particles" in repr(evaluation())
