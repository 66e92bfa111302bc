"""One context of MLIR for all programs of a process."""

from functools import partialmethod

from jax.interpreters import mlir


def share_context() -> None:
    """Let all programs be lowered in one context.

    JAX makes one for each program and loads all dialects into it, which takes a third of the time of a small program.
    """
    mlir.ModuleContext.__init__ = partialmethod(mlir.ModuleContext.__init__, context=mlir.make_ir_context())
