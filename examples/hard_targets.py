"""Tempered sequential Monte Carlo on densities that are hard for a single chain, and whose log Z is known.

    python examples/hard_targets.py                     # half a minute
    python examples/hard_targets.py --particles 10000

The funnel of Neal (2003) in ten dimensions, whose scale changes from 0.01 to 90; a mixture of forty normal
distributions in a square of eighty (Midgley et al., 2023); and the many-well of 32 dimensions, with 2^16 modes (Noé et
al., 2019). Each is a program with a broad prior and a factor. A picture shows the particles.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpyro.distributions as dist
import typer
from rich.console import Console
from rich.table import Table

import steelyard as sy

MEANS = jax.random.uniform(jax.random.key(0), (40, 2), minval=-40.0, maxval=40.0)
STANDARD = dist.Normal(0.0, 1.0)


def funnel(s: sy.State) -> None:
    """v ~ N(0, 3^2), x_i ~ N(0, e^v)."""
    v = s.sample("v", dist.Normal(0.0, 3.0))
    x = s.sample("x", STANDARD.expand([9]).to_event(1))
    s.factor("density", (dist.Normal(0.0, jnp.exp(v / 2)).log_prob(x) - STANDARD.log_prob(x)).sum())


def gmm40(s: sy.State) -> None:
    """Forty modes with the same weight."""
    broad = dist.Normal(0.0, 40.0)
    x = s.sample("x", broad.expand([2]).to_event(1))
    modes = dist.Normal(MEANS, jax.nn.softplus(1.0)).to_event(1).log_prob(x[None])
    s.factor("density", jax.nn.logsumexp(modes) - jnp.log(40.0) - broad.log_prob(x).sum())


def many_well(s: sy.State) -> None:
    """Sixteen pairs, of which one number has two wells, and the other is normal."""
    x = s.sample("x", STANDARD.expand([32]).to_event(1))
    well, rest = x[::2], x[1::2]
    energy = well**4 - 6 * well**2 - 0.5 * well + 0.5 * rest**2
    s.factor("density", -energy.sum() - STANDARD.log_prob(x).sum())


def broad_hmc(log_density: Any, step_size: Any, inverse_mass_matrix: Any, steps: int = 20) -> Any:
    """Hamiltonian Monte Carlo, whose step size is drawn anew each time: no single one fits the whole funnel."""
    kernel = partial(blackjax.hmc, log_density, inverse_mass_matrix=inverse_mass_matrix, num_integration_steps=steps)

    def step(key: Any, state: Any) -> Any:
        k1, k2 = jax.random.split(key)
        return kernel(step_size=step_size * jnp.exp(jax.random.uniform(k1, minval=-4.0, maxval=1.0))).step(k2, state)

    return kernel(step_size=step_size).init, step


@dataclass(frozen=True)
class Case:
    """A target with its exact log Z, and how to move on it."""

    model: Any
    exact: float
    kernel: Any
    steps: int
    show: Any


HMC = partial(blackjax.hmc, num_integration_steps=10)
CASES = {
    "funnel": Case(funnel, 0.0, broad_hmc, 40, lambda t: (t["x"][:, 0], t["v"])),
    "GMM40": Case(gmm40, 0.0, HMC, 2, lambda t: (t["x"][:, 0], t["x"][:, 1])),
    "many-well": Case(many_well, 164.6957, HMC, 5, lambda t: (t["x"][:, 0], t["x"][:, 2])),
}


def run(case: Case, key: Any, particles: int, steps: int | None = None, ess: float = 0.95) -> sy.Evaluation:
    """Find a schedule and sample."""
    steps = case.steps if steps is None else steps
    q = sy.algorithms.tempered(case.model, case.kernel, sy.adaptive(ess=ess), steps=steps)
    return jax.jit(lambda key: sy.evaluate(q, key, particles=particles))(key)


def modes_found(out: sy.Evaluation) -> int:
    """Return how many of the forty modes have a particle next to them."""
    distance = jnp.linalg.norm(out.trace["x"][:, None] - MEANS[None], axis=-1)
    return int((distance.min(axis=0) < 3.0).sum())


def main(
    particles: Annotated[int, typer.Option(min=2)] = 4000,
    seed: int = 0,
    out: Annotated[Path | None, typer.Option(help="a folder for the picture")] = None,
) -> None:
    """Run all three, print log Z next to its exact value, and draw the particles."""
    table = Table("target", "log Z", "exact", "levels", "ESS", "acceptance")
    figure, axes = plt.subplots(1, len(CASES), figsize=(10, 3.3), layout="constrained")
    for axis, (name, case) in zip(axes, CASES.items(), strict=True):
        result = run(case, jax.random.key(seed), particles)
        levels = sy.found(result).beta.size - 1
        rate = result.levels[-1].acceptance[:levels].mean()
        table.add_row(name, f"{result.log_z:.3f}", f"{case.exact:g}", str(levels), f"{result.ess:.0f}", f"{rate:.2f}")
        axis.scatter(*case.show(result.resample(jax.random.key(seed)).trace), s=1, alpha=0.4)
        axis.set_title(name)
        if name == "GMM40":
            axis.plot(*MEANS.T, "k+", ms=4)
            axis.set_xlabel(f"{modes_found(result)} of 40 modes found")
    Console().print(table)
    path = (out or Path.cwd()) / "hard_targets.png"
    figure.savefig(path, dpi=150)
    print(f"The particles: {path}")


if __name__ == "__main__":
    typer.run(main)
