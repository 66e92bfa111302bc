"""Reads the docstrings for the reference."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Griffe knows a section of code by its plural."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
