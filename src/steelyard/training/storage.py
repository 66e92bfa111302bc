"""Where a run is kept: in checkpoints that the first process writes and reads, or nowhere."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

from steelyard.training.checkpoints import Checkpoints
from steelyard.training.processes import Processes


@dataclass(frozen=True)
class Storage:
    """The checkpoints of a run, as all of its processes see them.

    Attributes:
        processes: those of the run.
        store: the checkpoints, in the first process; None in all others, and if nothing is kept.
        is_kept: whether the run is kept.
    """

    processes: Processes
    store: Checkpoints | None
    is_kept: bool

    def load(self, like: Callable[[int], Any], steps: Callable[[Any], int], most: int) -> Any | None:
        """Return the newest checkpoint in every process; None, if there is none.

        Args:
            like: `like(steps)` has its structure and shapes.
            steps: how many steps what was kept has made.
            most: it is refused if it is further.
        """
        if not self.is_kept:
            return None
        found = self.processes.first_does(lambda: self.store and self.store.load(like, most))
        (done,) = self.processes.first_says(-1 if found is None else steps(found))
        return None if done < 0 else self.processes.arrays_of_first(like(done) if found is None else found)

    def save(self, steps: int, state: Any) -> None:
        """Write a checkpoint, and wait until it is there."""
        if self.is_kept:
            whole = self.processes.whole(state)
            self.processes.first_does(lambda: self.store and self.store.save(steps, whole))


@contextmanager
def opened(
    directory: str | PathLike[str] | None, identity: Callable[[], dict[str, Any]], processes: Processes
) -> Iterator[Storage]:
    """Hold the directory for one run; None, if it is kept nowhere."""
    if directory is None:
        yield Storage(processes, None, is_kept=False)
        return
    who = identity()
    with ExitStack() as stack:
        store = processes.first_does(lambda: stack.enter_context(Checkpoints.opened(directory, who)))
        yield Storage(processes, store, is_kept=True)
