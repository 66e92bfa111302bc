"""What decides the numbers of a cell of the table: two cells with the same settings are the same cell."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import steelyard as sy
from steelyard.experiments.annealing.methods import METHODS, Method

SAMPLES, BATCHES, AVERAGE = 1_000, 100, 0.1
PAPER_STEPS, PAPER_BUDGET = 20_000, 288


@dataclass(frozen=True)
class Cell:
    """One method at one number of densities, for all seeds.

    Attributes:
        method: the name of the method.
        densities: K, how many densities the path has, the initial one included.
        seeds: how many samplers are trained, with the seeds 0, 1, ...
        steps: how many steps each is trained.
        budget: K times the number of particles in training.
        samples: the particles of a batch at test time.
        batches: over how many batches the metrics are averaged.
        average: the share of the steps, the last ones, over which parameters are averaged for the test; 0 takes those
            of the last step.
    """

    method: str
    densities: int
    seeds: int
    steps: int
    budget: int
    samples: int = SAMPLES
    batches: int = BATCHES
    average: float = AVERAGE

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise sy.ArgumentError(f"there is no method {self.method!r}; the methods are {', '.join(METHODS)}.")
        if self.densities < 2:
            raise sy.ArgumentError(
                f"K is {self.densities}, but a path has at least 2 densities: the initial and the ring."
            )
        if self.particles < 2:
            raise sy.ArgumentError(
                f"a budget of {self.budget} samples gives {self.particles} particles at K = {self.densities}; "
                f"at least 2 are needed. Give a budget of {2 * self.densities} or more."
            )
        for name in ("seeds", "steps", "samples", "batches"):
            if getattr(self, name) < 1:
                raise sy.ArgumentError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        if not 0 <= self.average <= 1:
            raise sy.ArgumentError(f"average is {self.average}, but a share of the steps is between 0 and 1.")

    @property
    def kind(self) -> Method:
        """The method itself."""
        return METHODS[self.method]

    @property
    def work(self) -> dict[str, Any]:
        """What is computed. With two densities there is no schedule to learn, and methods have cells in common."""
        method = replace(self.kind, name="", learned=self.kind.learned and self.densities > 2)
        return asdict(self) | {"method": method}

    @property
    def particles(self) -> int:
        """L, the number of particles in training."""
        return self.budget // self.densities

    @property
    def name(self) -> str:
        """A name for the cell's files, with all settings in it."""
        return (
            f"{self.kind.slug}_K{self.densities}_seeds{self.seeds}_steps{self.steps}_budget{self.budget}"
            f"_test{self.batches}x{self.samples}_rate{self.kind.learning_rate:g}_average{self.average:g}"
        )

    @property
    def effort(self) -> str:
        """How much went into the cell, in words; the paper's are of 10 seeds, 20,000 steps and a budget of 288."""
        averaged = f", parameters averaged over the last {self.average:.0%} of the steps" if self.average else ""
        return f"{self.seeds:,} seeds, {self.steps:,} steps, budget {self.budget:,}{averaged}"

    @property
    def is_short(self) -> bool:
        """Whether less went into training than for the paper's cell, which is then no yardstick."""
        return self.steps < PAPER_STEPS or self.budget < PAPER_BUDGET

    def as_dict(self) -> dict[str, Any]:
        """Return the settings by name, with those that the method has when the cell is computed."""
        kind = self.kind
        return asdict(self) | {
            "resampling": kind.resampling,
            "learned": kind.learned,
            "objective": kind.objective.__name__,
            "learning_rate": kind.learning_rate,
            "decays": kind.decays,
        }
