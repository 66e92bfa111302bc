"""Programs that are run again on a branch which begins like the one before: what both have in common is not repeated.

A program is a function of its arguments and of what it samples. Up to the first choice that differs, each call of
`sample`, `observe` and `factor` therefore does what it did before. It is answered from a tape, and what it left in the
state is put back at once. Of a program with n coins, a branch repeats the calls of about two, not of all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from steelyard.errors import ArgumentError
from steelyard.language.state import State
from steelyard.testing.outcomes import Branch

# All of a state that its calls change.
CHANGED = ("_score", "_site", "_seen", "_trace", "_log_density", "_masks", "_origins", "_terms")


class Call(NamedTuple):
    """What a call was, what came of it, and how many choices and what state there were after it."""

    what: tuple[str, str]
    result: Any
    error: Exception | None
    returns_its_argument: bool
    choices: int
    state: dict[str, Any]


@dataclass
class Tape:
    """The calls of a program on the branch before."""

    calls: list[Call] = field(default_factory=list)

    def cut(self, branch: Branch) -> int:
        """Keep what comes before the choice in which a branch differs, and return how many calls these are."""
        while self.calls and self.calls[-1].choices >= branch.prescribed:
            self.calls.pop()
        return len(self.calls)


class Replaying(State):
    """A state that answers from a tape as long as it can, and records what comes after."""

    def __init__(self, tape: Tape, branch: Branch, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tape = tape
        self._branch = branch
        self._known = tape.cut(branch)
        self._answered = 0

    def sample(self, address: str, distribution: Any) -> Any:
        sample = super().sample
        return self._call(("sample", address), lambda: sample(address, distribution))

    def observe(self, address: str, distribution: Any, value: Any, *, scale: Any = 1.0) -> Any:
        observe = super().observe
        return self._call(("observe", address), lambda: observe(address, distribution, value, scale=scale), value)

    def factor(self, address: str, log_value: Any) -> None:
        factor = super().factor
        self._call(("factor", address), lambda: factor(address, log_value))

    def _call(self, what: tuple[str, str], compute: Callable[[], Any], argument: Any = None) -> Any:
        if self._answered < self._known:
            return self._answer(what, argument)
        result = error = None
        try:
            result = compute()
        except Exception as raised:
            error = raised
            raise
        finally:
            state = _copied({name: getattr(self, name) for name in CHANGED})
            self._tape.calls.append(Call(what, result, error, result is argument, self._branch.made, state))
        return result

    def _answer(self, what: tuple[str, str], argument: Any) -> Any:
        call = self._tape.calls[self._answered]
        self._answered += 1
        if call.what != what:
            raise ArgumentError(
                f"{self._place}: after the same values as before, the program called {what[0]}({what[1]!r}, ...) where "
                f"it had called {call.what[0]}({call.what[1]!r}, ...). Let what it does depend on nothing but its "
                f"arguments and what it samples."
            )
        if self._answered == self._known:
            vars(self).update(_copied(call.state))
            self._branch.skip(call.choices)
        if call.error is not None:
            raise call.error
        return argument if call.returns_its_argument else call.result


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: x.copy() if isinstance(x, dict | set) else x for name, x in state.items()}
