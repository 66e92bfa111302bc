"""One context of MLIR for the programs of a process."""

from threading import current_thread, main_thread
from typing import Any

from jax.interpreters import mlir


def share_context() -> None:
    """Let programs be lowered in one context.

    JAX makes one for each program and loads all dialects into it, which takes a third of the time of a small program.
    A program that is lowered while another one is, or in another thread, has its own: its operations would become a
    part of the other.
    """
    shared, lower = mlir.make_ir_context(), mlir.ModuleContext.__init__

    def lower_in_shared(self: Any, *args: Any, context: Any = None, **options: Any) -> None:
        if context is None and current_thread() is main_thread() and not _is_lowering(shared):
            context = shared
        lower(self, *args, context=context, **options)

    mlir.ModuleContext.__init__ = lower_in_shared


def _is_lowering(context: Any) -> bool:
    try:
        return type(context).current is not None
    except ValueError:
        return False
