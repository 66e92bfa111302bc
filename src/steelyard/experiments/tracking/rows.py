"""The rows and columns of Table 2: what is compared, on which videos."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

import steelyard as sy
from steelyard.experiments.tracking.model import Frames, generative, initial, sampler
from steelyard.experiments.tracking.networks import WHAT, Networks
from steelyard.experiments.tracking.settings import Method


class Leapfrog(NamedTuple):
    """The steps of Hamiltonian Monte Carlo with unit mass."""

    size: float
    number: int


# Of 1e-3 and 3e-4 the larger step explains videos better; a third of its moves or more are accepted.
TUNED = Leapfrog(1e-3, 5)
# Those of Wu et al. (2020), whose renderer has no gradient in the positions.
SMALL = Leapfrog(1e-4, 20)


@dataclass(frozen=True)
class Row:
    """A method with L particles and K sweeps, the first proposal included; of HMC-RWS, K transitions.

    Attributes:
        name: what the paper calls it.
        networks: whose networks it uses.
        particles: L.
        sweeps: K.
        paper: the paper's log p(x, z), column by column.
        leapfrog: of HMC-RWS, its steps.
    """

    name: str
    networks: Method
    particles: int
    sweeps: int
    paper: tuple[float, ...] = ()
    leapfrog: Leapfrog | None = None

    @property
    def label(self) -> str:
        """The method and its budget, L x K."""
        return f"{self.name} {self.particles} x {self.sweeps}"

    def program(self, networks: Networks, frames: Frames, objects: int) -> Any:
        """Return the inference program for a video."""
        if self.leapfrog is None:
            return sampler(networks, frames, objects, self.sweeps - 1)
        first = sy.propose(generative(networks, frames, objects), initial(networks, frames, objects))
        kernel = hamiltonian(objects * (WHAT + 2 * len(frames)), self.leapfrog)
        return sy.mcmc(kernel, first, steps=self.sweeps)


def hamiltonian(variables: int, leapfrog: Leapfrog) -> Any:
    """Return Hamiltonian Monte Carlo with unit mass, in all variables jointly.

    Raises:
        ArgumentError: BlackJAX is not installed.
    """
    try:
        import blackjax
    except ImportError as error:
        raise sy.ArgumentError("HMC-RWS needs BlackJAX: pip install 'steelyard[mcmc]'.") from error
    size, number = leapfrog
    return partial(blackjax.hmc, step_size=size, inverse_mass_matrix=jnp.ones(variables), num_integration_steps=number)


# How many objects and frames the videos have.
COLUMNS = ((3, 10), (3, 20), (4, 10), (4, 20))


ROWS = (
    Row("RWS", "rws", 200, 1, (-5247, -9396, -8275, -16070)),
    Row("HMC-RWS", "rws", 200, 20, (-5137, -9281, -8124, -15087), TUNED),
    Row("APG", "apg", 100, 2, (-2849, -5008, -4411, -8966)),
    Row("APG", "apg", 40, 5, (-2300, -4646, -3529, -6879)),
    Row("APG", "apg", 20, 10, (-2267, -4606, -3516, -6827)),
)
# Next to HMC-RWS, for who asks for it by name: its steps are too small to get anywhere.
WITH_SMALL_STEPS = Row("HMC-RWS-SMALL", "rws", 200, 20, ROWS[1].paper, SMALL)
