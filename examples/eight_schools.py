"""Eight schools: tempered sequential Monte Carlo next to NumPyro's NUTS, centred and not.

    python examples/eight_schools.py

The effects of coaching in eight schools (Rubin, 1981) share a mean and a scale. A chain gets stuck where the scale is
small, in the centred form; particles that come from the prior are there already. And there is a log Z to compare
models with.
"""

from functools import partial
from typing import Annotated, Any

import blackjax
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import typer
from numpyro.infer import MCMC, NUTS
from rich.console import Console
from rich.table import Table

import steelyard as sy

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def centred(s: sy.State) -> None:
    """Effects around their mean."""
    mu = s.sample("mu", dist.Normal(0.0, 5.0))
    tau = s.sample("tau", dist.HalfCauchy(5.0))
    theta = s.sample("theta", dist.Normal(mu, tau).expand([8]).to_event(1))
    s.observe("y", dist.Normal(theta, ERRORS).to_event(1), EFFECTS)


def not_centred(s: sy.State) -> None:
    """The same, with standardised effects."""
    mu = s.sample("mu", dist.Normal(0.0, 5.0))
    tau = s.sample("tau", dist.HalfCauchy(5.0))
    z = s.sample("z", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
    s.observe("y", dist.Normal(mu + tau * z, ERRORS).to_event(1), EFFECTS)


def numpyro_model() -> None:
    """The same in NumPyro, not centred."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
    theta = numpyro.deterministic("theta", mu + tau * z)
    numpyro.sample("y", dist.Normal(theta, ERRORS).to_event(1), obs=EFFECTS)


def quantities(trace: Any) -> dict[str, Any]:
    """Return what is compared, whichever way a model is written."""
    mu, tau = trace["mu"], trace["tau"]
    first = trace["theta"][..., 0] if "theta" in trace else mu + tau * trace["z"][..., 0]
    return {"mu": mu, "log tau": jnp.log(tau), "theta 1": first}


def nuts(key: Any, draws: int) -> dict[str, Any]:
    """Sample with NumPyro's NUTS."""
    mcmc = MCMC(NUTS(numpyro_model, target_accept_prob=0.95), num_warmup=1000, num_samples=draws, progress_bar=False)
    mcmc.run(key)
    return quantities(mcmc.get_samples())


def tempered(model: Any, key: Any, particles: int, steps: int = 10) -> sy.Evaluation:
    """Sample with a schedule that is found on the way."""
    hmc = partial(blackjax.hmc, num_integration_steps=10)
    q = sy.algorithms.tempered(model, hmc, sy.adaptive(ess=0.95, acceptance=0.8), steps=steps)
    return jax.jit(lambda key: sy.evaluate(q, key, particles=particles))(key)


def moments(x: Any, weights: Any) -> tuple[Any, Any]:
    """Return the weighted mean and standard deviation."""
    mean = weights @ x
    return mean, (weights @ (x - mean) ** 2) ** 0.5


def main(
    particles: Annotated[int, typer.Option(min=2)] = 4000, draws: Annotated[int, typer.Option(min=2)] = 20_000
) -> None:
    """Print means and standard deviations, by method."""
    table = Table("", "log Z", *(f"{name}: mean, sd" for name in ("mu", "log tau", "theta 1")))
    reference = nuts(jax.random.key(0), draws)
    table.add_row("NUTS", "", *(f"{x.mean():.2f}, {x.std():.2f}" for x in reference.values()))
    for model in (centred, not_centred):
        out = tempered(model, jax.random.key(1), particles)
        found = (moments(x, out.normalized_weights) for x in quantities(out.trace).values())
        table.add_row(model.__name__, f"{out.log_z:.2f}", *(f"{mean:.2f}, {sd:.2f}" for mean, sd in found))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
