"""Previews: what a step of a loop leaves, seen before the loop is traced in full.

A step is traced twice: once to see the form of what it leaves, and once for its equations. With no more than that, a
step would be traced once more for each loop around it. The preview of a loop is therefore remembered while one
evaluation is traced, by the place of the loop in the steps around it and by the form of what goes into it. What was
remembered is compared with what the step then leaves. If they differ, the loop is traced again with a new preview: so
none is taken on trust, not even where a step of the user does something else each time.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import jax

from steelyard.compiler.keys import Drawn
from steelyard.compiler.repeats import Repeats
from steelyard.semantics.scans import Step

# The numbers of a loop and of the loops around it, each counted in the step that it is in; the outermost first.
Place: TypeAlias = tuple[int, ...]


class Preview(NamedTuple):
    """What a step leaves, in shapes; which arrays are in it twice; if its source lasts; how many keys it uses."""

    after: Step
    repeats: Repeats
    keeps_source: bool
    keys: int

    def fits(self, done: Step, repeats: Repeats, keys: int) -> bool:
        """Tell whether this is what a step has left indeed. More arrays may be in it twice than the preview shows."""
        return (
            _carried(self.after) == _carried(done)
            and self.keys == keys
            and self.repeats.common(repeats).first == self.repeats.first
        )


class Stale(Exception):
    """A step left something else than its preview shows."""


class Previews:
    """The previews of one evaluation, which go with it."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, Preview] = {}
        self._draws: dict[tuple[Place, int], Drawn] = {}
        self._around: Place = ()
        self._count = 0
        self._remembers = True
        self.active = False

    def place(self) -> Place:
        """Return the place of the next loop."""
        self._count += 1
        return (*self._around, self._count)

    @contextmanager
    def inside(self, place: Place) -> Iterator[None]:
        """Trace a step of the loop at this place."""
        before = self._around, self._count
        self._around, self._count = place, 0
        try:
            yield
        finally:
            self._around, self._count = before

    @contextmanager
    def previewing(self) -> Iterator[None]:
        """Evaluate programs to see the form of their results, but not the numbers."""
        before, self.active = self.active, True
        try:
            yield
        finally:
            self.active = before

    def remembered(self, mark: Hashable) -> Preview | None:
        """Return a preview that was made before. None inside of a preview, where nothing would compare it."""
        return None if self.active else self._seen.get(mark)

    def remember(self, mark: Hashable, preview: Preview) -> Preview:
        """Return the preview, and keep it for the loop when it is traced in full."""
        if self._remembers:
            self._seen[mark] = preview
        return preview

    def expected_draws(self, number: int) -> Drawn:
        """Return what the program of this number in a step was seen to draw at once; nothing, inside of a preview."""
        return Drawn() if self.active else self._draws.get((self._around, number), Drawn())

    def expect_draws(self, number: int, drawn: Drawn) -> None:
        """Expect a program to draw the same again, when its step is traced in full."""
        self._draws[self._around, number] = drawn

    def forget(self) -> None:
        """Remember no preview from now on: a step that is not always the same would be traced in vain too often."""
        self._remembers = False
        self._seen.clear()


def form(tree: Any) -> Hashable:
    """Return the form of a tree of arrays: its structure, with shapes and types."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(map(jax.typeof, leaves))


def _carried(step: Step) -> Any:
    """Return the form of what a step hands to the next, and what is known of it. What is recorded is seen by nobody."""
    e = step.evaluation
    return form((e, step.arguments, step.ancestors)), dict(e.trace.origins)
