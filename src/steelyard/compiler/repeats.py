"""Arrays that are in an evaluation more than once, and need go round in a loop only once.

A variable that a program returns is then one array for all who read it, and what a kernel and its reverse compute from
it is computed once.

Measured alone (`python -m benchmarks passes`): sweeps in which a network updates a block take 1.4 times as long
without it, and twice the memory.
"""

from typing import Any, NamedTuple

import jax

from steelyard.semantics.evaluation import Evaluation


class Repeats(NamedTuple):
    """Leaves that occur twice in the carry of a loop. The loop carries each once."""

    structure: Any
    first: tuple[int, ...]

    @classmethod
    def of(cls, e: Evaluation) -> "Repeats":
        leaves, structure = jax.tree.flatten(e)
        return cls(structure, _first([id(leaf) for leaf in leaves]))

    def common(self, other: "Repeats") -> "Repeats":
        """Return what is repeated in both."""
        if len(self.first) != len(other.first):
            return self.none()
        return Repeats(self.structure, _first([*zip(self.first, other.first, strict=True)]))

    def none(self) -> "Repeats":
        """Return that nothing is repeated."""
        return Repeats(self.structure, tuple(range(len(self.first))))

    def remove(self, e: Evaluation) -> list[Any]:
        """Return each array once."""
        return [leaf for i, leaf in enumerate(jax.tree.leaves(e)) if self.first[i] == i]

    def restore(self, arrays: list[Any]) -> Evaluation:
        """Return the evaluation of these arrays."""
        once = iter(arrays)
        leaves: list[Any] = []
        for i, first in enumerate(self.first):
            leaves.append(next(once) if first == i else leaves[first])
        return jax.tree.unflatten(self.structure, leaves)


def _first(items: list[Any]) -> tuple[int, ...]:
    return tuple(map(items.index, items))
