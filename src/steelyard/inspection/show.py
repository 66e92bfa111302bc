"""Inference programs drawn as trees."""

# Signatures then show the names that are written here, not what they stand for.
from __future__ import annotations

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from steelyard.language.describe import describe
from steelyard.language.programs import (
    Adapt,
    Carried,
    Compose,
    Extend,
    Mcmc,
    Metropolis,
    Move,
    Primitive,
    Program,
    Programmable,
    Propose,
    Rename,
    Resample,
    Scan,
    Transport,
    name_of,
    parts,
    program,
)
from steelyard.output import Encodable, terminal


def show(q: Programmable, *, console: Console | None = None) -> None:
    """Print a program as a tree.

    Args:
        q: a program.
        console: where to; the terminal, if None.

    Example:
        >>> import steelyard as sy
        >>> def model(s): ...
        >>> def guide(s): ...
        >>> sy.show(sy.resample(sy.propose(model, guide)))
        resample systematic
        └── propose
            ├── target: model
            └── proposal: guide
    """
    (console or terminal()).print(Encodable(tree(q)))


def tree(q: Programmable) -> Tree:
    """Return the tree of a program."""
    root = Tree("")
    waiting: list[tuple[Tree, str, Program]] = [(root, "", program(q))]
    while waiting:
        branch, role, q = waiting.pop()
        heading, parts = _parts(q)
        branch.label = Text.assemble((f"{role}:", "dim"), " ", heading) if role else heading
        branch.children = [Tree("") for _ in parts]
        waiting += [(child, role, part) for child, (role, part) in zip(branch.children, parts, strict=True)]
    return root


def _parts(q: Program) -> tuple[Text, list[tuple[str, Program]]]:
    """Return the heading of a program, and its parts with their roles."""
    match q:
        case Primitive():
            return Text(describe(q), "green"), []
        case Rename(inner, pairs):
            return _heading("rename", " " + ", ".join(f"{a} → {b}" for a, b in pairs)), [("", inner)]
        case Extend(p, f):
            return _heading("extend"), [("target", p), ("kernel", f)]
        case Compose(q2, q1) | Move(q2, q1):
            return _heading(type(q).__name__.lower()), [("first", q1), ("then", q2)]
        case Propose(p, inner, objective):
            aim = [] if objective is None else [(" objective ", "dim"), getattr(objective, "__name__", "?")]
            return _heading("propose", *aim), [("target", p), ("proposal", inner)]
        case Resample(inner, method, threshold, None):
            when = "" if threshold is None else f" where ESS < {threshold:g} L"
            return _heading("resample", f" {method}{when}"), [("", inner)]
        case Resample(inner, method, threshold, islands, ring):
            when = "" if threshold is None else f", together where ESS < {threshold:g} of them"
            onward = "" if ring is None else f", {ring:g} of each to the next"
            return _heading("resample", f" {method} in {islands} islands{when}{onward}"), [("", inner)]
        case Scan():
            inner = q.build(Carried(), 0) if q.length else q.q
            return _heading("scan", f" {q.length} times"), [("first", q.q), ("then", inner)]
        case Adapt():
            inner = q.step(Carried(), q.example)
            return _heading("scan", f" at most {q.most} times"), [("first", q.q), ("then", program(inner))]
        case Mcmc(kernel, inner, steps):
            return _heading("mcmc", f" {name_of(kernel)}{_times(steps)}"), [("", inner)]
        case Metropolis(f, inner, steps):
            return _heading("metropolis", _times(steps)), [("first", inner), ("proposal", f)]
        case Transport(bijection, inner):
            return _heading("transport", f" {name_of(bijection)}"), [("", inner)]
        case Carried():
            return Text("what came before", "dim"), []
        case _:
            inside = parts(q)
            return _heading(type(q).__name__.lower()), [
                (name if len(inside) > 1 else "", part) for name, part in inside
            ]


def _times(steps: int) -> str:
    return "" if steps == 1 else f", {steps} steps"


def _heading(name: str, *rest: str | tuple[str, str]) -> Text:
    # Parts of a text, not markup: names and addresses may hold square brackets.
    return Text.assemble((name, "bold"), *rest)
