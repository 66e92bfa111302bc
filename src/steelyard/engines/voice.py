"""What an engine says to the user."""

from warnings import warn

from steelyard.errors import SupportWarning


class Voice:
    """What is said to the user, each thing once, however often a program is traced."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, message: str) -> None:
        """Warn, unless it was said before."""
        if message not in self._said:
            self._said.add(message)
            warn(message, SupportWarning, stacklevel=2)
