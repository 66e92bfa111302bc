"""How far programs are that run on chunks of particles, shown from inside of the compiled program; Ctrl-C ends them.

A compiled program asks before each chunk whether to go on. If not, the chunks that are left are not computed.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.output import progress_bar, terminal

# Seconds between two looks at whether it is done, and between two lines where there is no terminal.
LOOK, LINE = 0.05, 2.0


class Watch:
    """Counts the particles on which programs have begun to run, and shows it.

    Args:
        particles: how many particles there are. Programs run on all of them again and again, as in each step of a scan.
        show: is called with the number of the run, from one on, and how many particles were begun in it before.

    Attributes:
        stopped: whether programs are to leave out what they have not begun.
    """

    def __init__(self, particles: int, show: Callable[[int, int], None]) -> None:
        self._particles = particles
        self._show = show
        self._begun = 0
        self._lock = Lock()
        self.stopped = False

    def goes_on(self, xs: Any) -> Any:
        """Return, where a program is traced, whether to run it on the next chunk, which is this."""
        leaves = [x for x in jax.tree.leaves(xs) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key) and x.size]
        # Not a callback with side effects: JAX could then not leave out what nobody needs. With something of the chunk:
        # what is asked twice in the same words is only asked once.
        some = [x.ravel()[0] for x in leaves]
        rows = np.int32(jax.tree.leaves(xs)[0].shape[0])
        return jax.pure_callback(self._begin, jax.ShapeDtypeStruct((), bool), rows, *some)

    def _begin(self, rows: Any, *_: Any) -> np.ndarray:
        # Devices call at the same time.
        with self._lock:
            run, before = divmod(self._begun, self._particles)
            self._begun += int(rows)
            try:
                if not self.stopped:
                    self._show(run + 1, before)
            except KeyboardInterrupt:
                # A small program runs where it is called, and Ctrl-C finds it here.
                self.stopped = True
            return np.asarray(not self.stopped)


@contextmanager
def watching(particles: int) -> Iterator[Watch]:
    """Give a watch that shows a bar in a terminal, and lines elsewhere."""
    console = terminal(stderr=True)
    if console.is_terminal:
        with progress_bar(console) as bar:
            task, shown = bar.add_task("compiling", total=particles), 0

            def show(run: int, before: int) -> None:
                nonlocal shown
                if run != shown:
                    shown = run
                    bar.reset(task)
                bar.update(task, completed=before, description=f"particles, run {run}")

            yield Watch(particles, show)
            bar.update(task, completed=particles)
        return
    last = time.monotonic()

    def print_line(run: int, before: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE:
            last = time.monotonic()
            console.print(f"run {run}: {before:,} of {particles:,} particles", soft_wrap=True, highlight=False)

    yield Watch(particles, print_line)


def awaited(results: Any, watch: Watch) -> Any:
    """Return results when they are there; at Ctrl-C have the program end first, within a chunk."""
    try:
        while not all(x.is_ready() for x in jax.tree.leaves(results)):
            time.sleep(LOOK)
    except KeyboardInterrupt:
        watch.stopped = True
        jax.block_until_ready(results)
    if watch.stopped:
        raise KeyboardInterrupt
    return results


def watched_map(f: Callable[[Any], Any], xs: Any, chunk: int, watch: Watch) -> Any:
    """Return f of every row, as `jax.lax.map(f, xs, batch_size=chunk)` does; what is stopped gives zeros."""
    rows = jax.tree.leaves(xs)[0].shape[0]
    whole = rows - rows % chunk

    def part(xs: Any) -> Any:
        every = jax.vmap(f)
        shapes = jax.eval_shape(every, xs)
        return jax.lax.cond(
            watch.goes_on(xs), every, lambda xs: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), xs
        )

    chunks = jax.tree.map(lambda x: x[:whole].reshape(-1, chunk, *x.shape[1:]), xs)
    parts = []
    if whole:
        done = jax.lax.map(part, chunks)
        parts.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), done))
    if whole < rows:
        parts.append(part(jax.tree.map(lambda x: x[whole:], xs)))
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *ys: jnp.concatenate(ys), *parts)
