"""The rows and columns of Table 2: what is compared, on which videos."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp

import steelyard as sy
from steelyard.experiments.tracking.model import Frames, generative, initial, sampler
from steelyard.experiments.tracking.networks import WHAT, Networks
from steelyard.experiments.tracking.settings import Method

# Hamiltonian Monte Carlo with unit mass. Of 1e-3 and 3e-4 the larger step explains videos better; a third of its moves
# or more are accepted.
STEP_SIZE, LEAPFROGS = 1e-3, 5


@dataclass(frozen=True)
class Row:
    """A method with L particles and K sweeps, the first proposal included; of HMC-RWS, K transitions.

    Attributes:
        name: what the paper calls it.
        networks: whose networks it uses.
        particles: L.
        sweeps: K.
        paper: the paper's log p(x, z), column by column.
    """

    name: str
    networks: Method
    particles: int
    sweeps: int
    paper: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        """The method and its budget, L x K."""
        return f"{self.name} {self.particles} x {self.sweeps}"

    def program(self, networks: Networks, frames: Frames, objects: int) -> Any:
        """Return the inference program for a video."""
        if self.name != "HMC-RWS":
            return sampler(networks, frames, objects, self.sweeps - 1)
        first = sy.propose(generative(networks, frames, objects), initial(networks, frames, objects))
        return sy.mcmc(hamiltonian(objects * (WHAT + 2 * len(frames))), first, steps=self.sweeps)


def hamiltonian(variables: int) -> Any:
    """Return Hamiltonian Monte Carlo with unit mass, in all variables jointly.

    Raises:
        ArgumentError: BlackJAX is not installed.
    """
    try:
        import blackjax
    except ImportError as error:
        raise sy.ArgumentError("HMC-RWS needs BlackJAX: pip install 'steelyard[mcmc]'.") from error
    mass = jnp.ones(variables)
    return partial(blackjax.hmc, step_size=STEP_SIZE, inverse_mass_matrix=mass, num_integration_steps=LEAPFROGS)


# How many objects and frames the videos have.
COLUMNS = ((3, 10), (3, 20), (4, 10), (4, 20))


ROWS = (
    Row("RWS", "rws", 200, 1, (-5247, -9396, -8275, -16070)),
    Row("HMC-RWS", "rws", 200, 20, (-5137, -9281, -8124, -15087)),
    Row("APG", "apg", 100, 2, (-2849, -5008, -4411, -8966)),
    Row("APG", "apg", 40, 5, (-2300, -4646, -3529, -6879)),
    Row("APG", "apg", 20, 10, (-2267, -4606, -3516, -6827)),
)
