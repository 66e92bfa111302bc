"""The filter of `volatility.py` in the package `particles`.

Reads a task from the first line of standard input; for every further one runs it, and writes the time of that.
"""

import json
import sys
import time

import numpy as np

import particles
from particles import distributions as dists
from particles import state_space_models as ssm

task = json.loads(sys.stdin.readline())
mean, persistence, volatility = task["model"]


class Volatility(ssm.StateSpaceModel):
    """log-volatility as an autoregression; the first state is one step after Normal(mean, 1), as elsewhere."""

    def PX0(self):  # noqa: N802
        return dists.Normal(loc=mean, scale=np.sqrt(persistence**2 + volatility**2))

    def PX(self, t, xp):  # noqa: N802
        return dists.Normal(loc=mean + persistence * (xp - mean), scale=volatility)

    def PY(self, t, xp, x):  # noqa: N802
        return dists.Normal(loc=0.0, scale=np.exp(0.5 * x))


def run(count: int) -> float:
    """Return the time of a whole run over the first data."""
    model = ssm.Bootstrap(ssm=Volatility(), data=np.array(task["ys"][:count]))
    sampler = particles.SMC(fk=model, N=task["particles"], resampling="systematic", ESSrmin=1.0, store_history=False)
    start = time.perf_counter()
    sampler.run()
    return time.perf_counter() - start


print(run(10), flush=True)
for _ in sys.stdin:
    print(run(len(task["ys"])), flush=True)
