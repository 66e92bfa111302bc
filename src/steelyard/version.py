"""The version of the package that is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("steelyard")
except PackageNotFoundError:
    # Imported from its source, without being installed.
    __version__ = "unknown"
