"""How the networks of the tracking experiment are trained."""

from dataclasses import dataclass
from typing import Literal

Method = Literal["apg", "rws"]


@dataclass(frozen=True)
class Stage:
    """A part of training: videos of one length, and a learning rate that decays from `rate` to a tenth of it.

    Attributes:
        length: T, how many frames a video has.
        particles: L, how many particles a video has.
        sweeps: how many sweeps follow the first proposal; reweighted wake-sleep makes none.
        steps: how many steps of training.
        rate: the learning rate at the beginning.
    """

    length: int
    particles: int
    sweeps: int
    steps: int
    rate: float


@dataclass(frozen=True)
class Setting:
    """All that decides what is learned, but for the method.

    Attributes:
        stages: the parts of training, one after the other.
        objects: D, how many objects a video has.
        canvas: the height and width of a frame.
        batch: how many videos a step sees.
        videos: how many different videos there are to train with.
        seed: the seed of the videos, the networks and the draws.
    """

    stages: tuple[Stage, ...]
    objects: int = 3
    canvas: int = 96
    batch: int = 5
    videos: int = 10_000
    seed: int = 0


# Appendix G.2: 200 epochs of 10,000 videos, five sweeps. Weeks on two cores.
PAPER = Setting((Stage(length=10, particles=20, sweeps=5, steps=400_000, rate=2e-4),))
# What the parameters that come with the package are from: few frames first, since a step costs as many.
SHORT = Setting(
    (
        Stage(length=3, particles=10, sweeps=1, steps=5_000, rate=1e-3),
        Stage(length=10, particles=20, sweeps=1, steps=500, rate=3e-4),
    )
)
# Learns visibly within ten minutes: two objects in a smaller room.
SMALL = Setting((Stage(length=3, particles=10, sweeps=1, steps=1_500, rate=1e-3),), objects=2, canvas=64)
