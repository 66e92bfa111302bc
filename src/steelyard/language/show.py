"""Inference programs drawn as trees."""

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from steelyard.language.programs import (
    Carried,
    Compose,
    Detach,
    Extend,
    Move,
    Prev,
    Primitive,
    Program,
    Programmable,
    Propose,
    Rename,
    Resample,
    Scan,
    describe,
    program,
)


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
    (console or Console()).print(tree(q))


def tree(q: Programmable) -> Tree:
    """Return the tree of a program."""
    root = Tree("")
    waiting: list[tuple[Tree, str, Program]] = [(root, "", program(q))]
    while waiting:
        branch, role, q = waiting.pop()
        heading, parts = _parts(q)
        branch.label = f"[dim]{role}:[/dim] {heading}" if role else heading
        branch.children = [Tree("") for _ in parts]
        waiting += [(child, role, part) for child, (role, part) in zip(branch.children, parts, strict=True)]
    return root


def _parts(q: Program) -> tuple[str, list[tuple[str, Program]]]:
    match q:
        case Primitive():
            return f"[green]{escape(describe(q))}[/green]", []
        case Prev(f):
            return "[bold]prev[/bold]", [("", f)]
        case Rename(inner, pairs):
            return "[bold]rename[/bold] " + escape(", ".join(f"{a} → {b}" for a, b in pairs)), [("", inner)]
        case Extend(p, f):
            return "[bold]extend[/bold]", [("target", p), ("kernel", f)]
        case Compose(q2, q1):
            return "[bold]compose[/bold]", [("first", q1), ("then", q2)]
        case Propose(p, inner, objective):
            aim = "" if objective is None else f" [dim]objective[/dim] {escape(getattr(objective, '__name__', '?'))}"
            return f"[bold]propose[/bold]{aim}", [("target", p), ("proposal", inner)]
        case Resample(inner, method, threshold):
            when = "" if threshold is None else f" where ESS < {threshold:g} L"
            return f"[bold]resample[/bold] {method}{when}", [("", inner)]
        case Detach(inner):
            return "[bold]detach[/bold]", [("", inner)]
        case Scan():
            inner = q.build(Carried(), 0) if q.length else q.q
            return f"[bold]scan[/bold] {q.length} times", [("first", q.q), ("then", inner)]
        case Carried():
            return "[dim]what came before[/dim]", []
        case Move(q2, q1):
            return "[bold]move[/bold]", [("first", q1), ("then", q2)]
