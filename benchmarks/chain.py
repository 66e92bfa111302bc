"""A sweep of single-site Gibbs updates over a chain of T states: T = 100 next to T = 10, optimized and not."""

from typing import Any

import jax
import numpyro.distributions as dist

import steelyard as sy
from benchmarks.measure import Row, compare

PARTICLES, SHORT, LONG = 100, 10, 100


def chain(length: int) -> Any:
    def model(s: sy.State, ys: Any) -> Any:
        zs = [s.sample("z0", dist.Normal(0.0, 1.0))]
        for t in range(1, length):
            zs.append(s.sample(f"z{t}", dist.Normal(0.9 * zs[-1], 0.5)))
        for t, z in enumerate(zs):
            s.observe(f"y{t}", dist.Normal(z, 0.7), ys[t])
        return tuple(zs), ys

    return model


def update(t: int, length: int) -> Any:
    """The exact conditional of one state."""

    def kernel(s: sy.State, value: Any) -> Any:
        zs, ys = value
        precision = 1 / 0.7**2 + (1.0 if t == 0 else 1 / 0.5**2)
        mean = ys[t] / 0.7**2 + (0.0 if t == 0 else 0.9 * zs[t - 1] / 0.5**2)
        if t < length - 1:
            precision, mean = precision + 0.81 / 0.5**2, mean + 0.9 * zs[t + 1] / 0.5**2
        z = s.sample(f"z{t}", dist.Normal(mean / precision, precision**-0.5))
        return (*zs[:t], z, *zs[t + 1 :]), ys

    return kernel


def sweep(length: int, *, optimize: Any) -> Any:
    ys = jax.random.normal(jax.random.key(2), (length,))

    def run(key: Any) -> Any:
        model = chain(length)
        kernels = [update(t, length) for t in range(length)]
        q: Any = sy.propose(model, model)
        for kernel in kernels:
            q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, q))
        out = sy.evaluate(q, key, ys, particles=PARTICLES, optimize=optimize)
        return out.log_z, out.trace

    return run


def run() -> list[Row]:
    """Compare the lengths with densities reused and with densities computed anew."""
    rows = []
    for name, optimize in (("optimized", True), ("not optimized", False)):
        lengths = {f"T={t}": sweep(t, optimize=optimize) for t in (LONG, SHORT)}
        rows.append(
            compare(f"Gibbs sweep over a chain, {name}", lengths, (jax.random.key(0),), f"T={SHORT}", compilations=1)
        )
    return rows
