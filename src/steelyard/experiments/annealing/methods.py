"""The methods of Table 1: what each does in training, and the inference program that it trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import steelyard as sy
from steelyard.experiments.annealing.model import Sampler, annealed


@dataclass(frozen=True)
class Method:
    """A row of the table.

    Attributes:
        name: as in the paper; a star stands for a learned schedule, an R for resampling, a plus for a learning rate
            that is higher at first and decays.
        resampling: whether training resamples between levels.
        learned: whether the schedule is learned.
        objective: what every level minimises.
        learning_rate: Adam's.
        decays: whether the learning rate decays to zero, as a cosine.
    """

    name: str
    resampling: bool
    learned: bool
    objective: Any
    learning_rate: float = 1e-3
    decays: bool = False

    @property
    def slug(self) -> str:
        """The name, fit for the name of a file."""
        return self.name.lower().replace("*", "-star").replace("+", "-plus")


METHODS = {
    method.name: method
    for method in (
        Method("AVO", resampling=False, learned=False, objective=sy.objectives.avo),
        Method("NVI", resampling=False, learned=False, objective=sy.objectives.reverse_kl),
        Method("NVIR", resampling=True, learned=False, objective=sy.objectives.reverse_kl),
        Method("NVI*", resampling=False, learned=True, objective=sy.objectives.reverse_kl),
        Method("NVIR*", resampling=True, learned=True, objective=sy.objectives.reverse_kl),
        # Not in the paper.
        Method(
            "NVIR*+",
            resampling=True,
            learned=True,
            objective=sy.objectives.reverse_kl,
            learning_rate=5e-3,
            decays=True,
        ),
    )
}


def find(names: Sequence[str]) -> tuple[Method, ...]:
    """Return the methods of these names, in the order of the table.

    Args:
        names: names as in the paper.

    Returns:
        The methods, each once.

    Raises:
        ArgumentError: there is no method of a name.
    """
    for name in names:
        if name not in METHODS:
            raise sy.ArgumentError(f"there is no method {name!r}; the methods are {', '.join(METHODS)}.")
    return tuple(method for method in METHODS.values() if method.name in names)


def program(method: Method, sampler: Sampler, *, resampling: bool, unroll: int = 1) -> Any:
    """Return the inference program of a method for the sampler that it trains.

        q_k = propose(extend(annealed(beta_k), prev(reverse_k)), move(forward_k, detach(resample(q_{k-1}))))

    Args:
        method: the method; with the objective of `sy.algorithms.avo` and no resampling this is that algorithm.
        sampler: kernels and schedule.
        resampling: whether to resample between levels, which at test time need not be as it was in training.
        unroll: how many levels to compile into one step of the loop.

    Returns:
        The inference program for the ring.
    """
    over = (sampler.schedule(learned=method.learned), (sampler.forward, sampler.reverse))
    return sy.algorithms.nvi(
        annealed, lambda kernels: kernels, over, resampling=resampling, objective=method.objective, unroll=unroll
    )
