"""`python -m benchmarks.posteriors`: posterior means of NumPyro models, by tempered SMC here and by NUTS there.

The difference of each mean is given in standard errors: of NUTS from its effective sample size, of SMC from independent
runs. The largest over all numbers of a model is to be below four.
"""

from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from rich.console import Console
from rich.table import Table

import steelyard as sy
from tests.interop.models import CASES

NAMES = "regression", "logistic", "non_centred", "zero_inflated", "autoregressive", "censored"
PARTICLES, RUNS, CHAINS, SAMPLES = 2000, 8, 4, 5000


def by_smc(model: Any, args: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Means and their standard errors, from independent runs with a schedule that a pilot chose."""
    p, hmc = sy.from_numpyro(model), partial(blackjax.hmc, num_integration_steps=8)
    pilot = sy.algorithms.tempered(p, hmc, sy.adaptive(ess=0.9), steps=3)
    schedule = sy.found(sy.evaluate(pilot, jax.random.key(100), *args, particles=PARTICLES))
    q = sy.algorithms.tempered(p, hmc, schedule, steps=5)

    @jax.jit
    def means(key: Any) -> Any:
        return sy.evaluate(q, key, *args, particles=PARTICLES).expect(dict)

    runs = [means(jax.random.key(i)) for i in range(RUNS)]
    values = {name: np.stack([np.asarray(run[name], float) for run in runs]) for name in runs[0]}
    return {n: v.mean(0) for n, v in values.items()}, {n: v.std(0, ddof=1) / RUNS**0.5 for n, v in values.items()}


def by_nuts(model: Any, args: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Means and their standard errors."""
    kernel = NUTS(model, target_accept_prob=0.95)
    mcmc = MCMC(
        kernel,
        num_warmup=1000,
        num_samples=SAMPLES,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), *args)
    draws = {name: np.asarray(x, float) for name, x in mcmc.get_samples(group_by_chain=True).items()}
    errors = {name: x.std((0, 1)) / effective_sample_size(x) ** 0.5 for name, x in draws.items()}
    return {name: x.mean((0, 1)) for name, x in draws.items()}, errors


def main() -> None:
    """Print the largest difference of each model."""
    table = Table("model", "numbers", "largest difference, in standard errors")
    for name in NAMES:
        model, args, _ = CASES[name]
        args = jax.tree.map(jnp.asarray, args)
        smc, smc_error = by_smc(model, args)
        nuts, nuts_error = by_nuts(model, args)
        scores = {n: np.abs(smc[n] - nuts[n]) / np.hypot(smc_error[n], nuts_error[n]) for n in smc}
        worst = max(scores, key=lambda n: scores[n].max())
        count = sum(x.size for x in scores.values())
        table.add_row(name, str(count), f"{scores[worst].max():.2f} ({worst})")
        print(name, f"{scores[worst].max():.2f}", worst, flush=True)
    Console().print(table)


if __name__ == "__main__":
    main()
