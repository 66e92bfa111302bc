"""The folder for the results of an experiment."""

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
