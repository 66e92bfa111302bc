"""The side conditions of Markov kernels, each with an error that names the addresses and a remedy."""

from collections.abc import Callable
from typing import Any

from steelyard.errors import AddressError, ArgumentError, GrammarError, LoopStructureError, ObservedKernelError
from steelyard.language.describe import describe
from steelyard.language.programs import Carried, Mcmc, Metropolis, Program, subprograms
from steelyard.maps import Map, dom
from steelyard.semantics.conditions import WRITTEN_OUT, overlap, unsampled
from steelyard.semantics.evaluation import Evaluation


def check_proposal(q: Metropolis, fresh: Evaluation, old: Map[Any], *, sees_all: bool) -> None:
    """Raise an error if the proposal of q observes something, or samples a variable that there is not to move."""
    if observed := overlap(unsampled(dom(fresh.log_density), dom(fresh.trace))):
        raise ObservedKernelError(
            f"{describe(q)}: the proposal {describe(q.f)} observes {', '.join(map(repr, observed))}; a proposal may "
            f"only sample, else its density is not known. Observe it in the target program instead."
        )
    for a in fresh.trace:
        if sees_all and a not in old:
            raise AddressError(
                f"{describe(q)}: {describe(q.f)} samples {a!r}, which is no variable of the program that it moves; "
                f"that has {', '.join(map(repr, old)) or 'none'}. A proposal may sample these and no others."
            )


def check_moved_by(q: Mcmc, trace: Map[Any], moved: Any, *, sees_all: bool) -> None:
    """Raise an error if q is to move what there is not, or has nothing to move."""
    for a in q.only or ():
        if sees_all and a not in trace:
            raise AddressError(
                f"{describe(q)}: there is no variable {a!r} to move; there are {', '.join(map(repr, trace)) or 'none'}."
            )
    if sees_all and not moved:
        raise AddressError(
            f"{describe(q)}: there is no continuous variable to move; there are "
            f"{', '.join(map(repr, trace)) or 'none'}. Use metropolis(f, q) with a program f that samples discrete "
            f"variables again."
        )


def check_kernel(q: Mcmc, made: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two functions of a Markov kernel; raise `ArgumentError` if they are not two functions."""
    parts = made if isinstance(made, tuple) else ()
    if len(parts) == 2 and all(map(callable, parts)):
        return parts[0], parts[1]
    raise ArgumentError(
        f"{describe(q)}: a kernel is a function kernel(log_density) that returns two functions, init(position) and "
        f"step(key, state); this one returned {type(made).__name__}."
    )


def check_state(q: Mcmc, state: Any, position: dict[str, Any]) -> None:
    """Raise `ArgumentError` unless the state of a Markov kernel holds the position that it was given."""
    if set(getattr(state, "position", None) or ()) != set(position):
        raise ArgumentError(
            f"{describe(q)}: init(position) returns a state whose attribute `position` is the dictionary that it was "
            f"given, with {', '.join(map(repr, sorted(position)))}; this one returned {type(state).__name__}. Use, for "
            f"example, a NamedTuple with a field `position`."
        )


def check_density_known(e: Evaluation, p: Program, q: Mcmc | Metropolis) -> None:
    """Raise an error if a Markov kernel cannot know the density that it is to leave invariant."""
    if e.facts.partial:
        raise GrammarError(
            f"{describe(q)}: a scan dropped variables, keeping only the newest, so that the density to leave invariant "
            f"is an integral that is not known. Leave keep out of the scan, or move the particles inside of its steps."
        )
    if any(isinstance(part, Carried) for part in subprograms(p)):
        raise LoopStructureError(
            f"{describe(q)}: inside of a step, the density of the program so far is that of the step before, which "
            f"this step does not know. Let the kernel move what the step proposed for: mcmc(kernel, propose(p, q)). "
            f"Or write the loop out: {WRITTEN_OUT}."
        )
