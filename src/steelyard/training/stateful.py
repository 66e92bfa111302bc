"""Models that change while a program uses them: statistics of a BatchNorm, counters of keys."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from steelyard.errors import ArgumentError

REMEDY = (
    "Call model.eval(), or set use_running_average=True and deterministic=True, so that layers leave their state "
    "alone; or use layers without one, as LayerNorm or GroupNorm."
)


@contextmanager
def unchanged(models: Any) -> Iterator[None]:
    """Raise `ArgumentError` if the program that runs inside changes the models.

    A program runs once for each datum and each particle, so that there is not one new state to carry to the next step.
    To drop it would be wrong in silence: statistics would stay at their start, and every step would have the same mask.
    """
    before = jax.tree.leaves_with_path(models)
    flax = sys.modules.get("flax.errors")
    try:
        yield
    except Exception as error:
        if flax is None or not isinstance(error, flax.TraceContextError):
            raise
        raise _refused(str(error).split(" from ")[0]) from error
    try:
        after = jax.tree.leaves(models)
    except ValueError as error:
        # How Equinox says that a later state has taken the place of this one.
        raise _refused("an eqx.nn.State was replaced by a later one") from error
    changed = [path for (path, x), y in zip(before, after, strict=False) if x is not y]
    if changed or len(before) != len(after):
        place = jax.tree_util.keystr(changed[0]) if changed else ""
        raise _refused(f"models{place} is not what it was")


def _refused(what: str) -> ArgumentError:
    return ArgumentError(
        f"train: the program changes its models ({what}), and training does not carry that from step to step. {REMEDY}"
    )
