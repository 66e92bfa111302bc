"""The metrics of a cell: log Z, ESS and the modes that were found, without and with resampling at test time."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray

import steelyard as sy
from steelyard.experiments.annealing.cores import mesh_of, options
from steelyard.experiments.annealing.methods import METHODS, program
from steelyard.experiments.annealing.model import CENTERS, MODES, Sampler
from steelyard.experiments.annealing.settings import Cell
from steelyard.experiments.annealing.train import shapes

SHARE = 0.05


class Metrics(NamedTuple):
    """Averages over the batches, for each seed.

    Attributes:
        log_z: the estimate of log Z.
        ess: the effective sample size of the last level.
        level_ess: the effective sample size of every level.
        mode_weight: the share of the weight that is nearest to each of the eight centres.
    """

    log_z: Float[np.ndarray, " seeds"]
    ess: Float[np.ndarray, " seeds"]
    level_ess: Float[np.ndarray, "seeds levels"]
    mode_weight: Float[np.ndarray, "seeds modes"]

    @property
    def modes(self) -> Float[np.ndarray, " seeds"]:
        """How many modes hold at least 5 % of the weight."""
        return np.sum(np.asarray(self.mode_weight) >= SHARE, axis=-1).astype(float)


class Summary(NamedTuple):
    """A mean over seeds, and its standard error, which is unknown for a single seed."""

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Any) -> "Summary":
        """Summarise the values of all seeds."""
        values = np.asarray(values, float)
        error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        return cls(float(np.mean(values)), error)

    def text(self, digits: int) -> str:
        """Return the mean with its error, as for a table."""
        return f"{self.mean:.{digits}f}" + ("" if self.error is None else f" ± {self.error:.{digits}f}")


def evaluate(cell: Cell, samplers: Sampler, *, resampling: bool) -> Metrics:
    """Evaluate the samplers of a cell.

    Args:
        cell: the settings.
        samplers: one for each seed, stacked along the first axis.
        resampling: whether to resample between levels.

    Returns:
        The metrics of every seed.
    """
    return _run(samplers, cell.batches, cell.samples, resampling)


def _run(samplers: Sampler, batches: int, samples: int, resampling: bool) -> Metrics:
    seeds = len(samplers.logits)
    # Other keys than in training, and the same for every method.
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), 2))(jnp.arange(seeds))
    # Where arrays are is a part of their type: those that come from elsewhere would be compiled for once more.
    own, whole = (NamedSharding(mesh_of(seeds), spec) for spec in (PartitionSpec("seeds"), PartitionSpec()))
    args = jax.device_put(((samplers, keys), jnp.asarray(batches)), (own, whole))
    return Metrics(*map(np.asarray, _compiled(seeds, samples, resampling)(*args)))


@lru_cache
def prepare(densities: int, seeds: int, samples: int) -> None:
    """Compile what `evaluate` will run for cells of these settings, by running it for no batches."""
    samplers: Any = jax.tree.map(lambda of: np.zeros(of.shape, of.dtype), shapes(densities, seeds))
    for resampling in (False, True):
        _run(samplers, 0, samples, resampling)


# How a sampler was trained makes no difference here, so that the methods share what is compiled.
@lru_cache
def _compiled(seeds: int, samples: int, resampling: bool) -> Callable[..., Any]:
    def batch(sampler: Sampler, key: PRNGKeyArray) -> tuple[Any, ...]:
        out = sample(sampler, key, samples, resampling=resampling)
        return out.log_z, out.ess, out.levels[-1].ess, mode_weight(out.value, out.normalized_weights)

    def average(x: tuple[Sampler, PRNGKeyArray], batches: Any) -> Any:
        def add(i: Any, total: Any) -> Any:
            return jax.tree.map(jnp.add, total, batch(x[0], jax.random.fold_in(x[1], i)))

        levels = len(x[0].logits) + 1
        nothing = jnp.zeros(()), jnp.zeros(()), jnp.zeros(levels), jnp.zeros(MODES)
        total = jax.lax.fori_loop(0, batches, add, nothing)
        return jax.tree.map(lambda values: values / batches, total)

    specs = {"in_specs": (PartitionSpec("seeds"), PartitionSpec()), "out_specs": PartitionSpec("seeds")}
    # The check is of communication between devices, and there is none.
    on_devices = jax.shard_map(jax.vmap(average, (0, None)), mesh=mesh_of(seeds), check_vma=False, **specs)
    return jax.jit(on_devices, compiler_options=options())


def sample(sampler: Sampler, key: PRNGKeyArray, samples: int, *, resampling: bool) -> sy.Evaluation:
    """Run one sampler; its levels are the last entry of `levels`."""
    return sy.evaluate(program(METHODS["NVI"], sampler, resampling=resampling), key, particles=samples)


def mode_weight(x: Float[Array, "samples 2"], weights: Float[Array, " samples"]) -> Float[Array, " modes"]:
    """Return the share of the weight that is nearest to each centre."""
    # All centres are as far from the origin, so that the nearest is in the direction of x.
    return weights @ jax.nn.one_hot(jnp.argmax(x @ CENTERS.T, axis=-1), MODES)
