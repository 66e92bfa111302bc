"""The folder for the results of an experiment, and files in it."""

import os
import tempfile
from pathlib import Path

import steelyard as sy


def prepare(folder: Path) -> None:
    """Make a folder and see that it can be written, before anything is computed for it.

    Raises:
        ArgumentError: it is a file, or cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise sy.ArgumentError(f"{folder} cannot hold the results ({error}). Choose another folder.") from error


def write(path: Path, content: bytes) -> Path:
    """Write a file such that it is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
