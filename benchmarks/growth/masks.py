"""Variables that only some of the particles have, next to the same without a mask."""

from typing import Any

import jax
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.growth.measure import Growth, Job, growth

PARTICLES = 10_000


def job(sites: int, distribution: Any, masked: bool) -> Job:
    def program(s: sy.State) -> None:
        flag = s.sample("flag", dist.Bernoulli(0.5)) == 1
        for i in range(sites):
            with s.when(flag if masked else True):
                s.sample(f"x{i}", distribution)

    def f(key: Any) -> Any:
        out = sy.evaluate(program, key, particles=PARTICLES)
        return dict(out.trace), dict(out.log_density)

    return f, (jax.random.key(0),)


def mask(name: str, distribution: Any) -> Growth:
    """A mask around some variables, by their number."""
    return growth(
        f"s.when around {name}, by sites",
        (1, 2, 4),
        lambda sites: job(sites, distribution, True),
        "without when",
        lambda sites: job(sites, distribution, False),
    )


ROWS = (lambda: mask("Gamma", dist.Gamma(2.0, 1.0)), lambda: mask("Beta", dist.Beta(2.0, 3.0)))
