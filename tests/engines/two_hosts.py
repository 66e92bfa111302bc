"""What two processes evaluate, for the tests to compare with one process.

python -m tests.engines.two_hosts --out FILE [--processes 2 --process 0 --coordinator HOST:PORT]
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.experimental import multihost_utils
from jax.sharding import Mesh

import steelyard as sy
from tests.lowering import share_context


def bits(out: sy.Evaluation) -> dict[str, Any]:
    """Return all that must be the same to the last bit, and log Z and the loss."""
    arrays = {"ancestors": out.ancestors, "log_weight": out.log_weight, **{f"z {a}": x for a, x in out.trace.items()}}
    arrays |= {f"level {i}": level.ancestors for i, level in enumerate(out.levels)}
    return {name: x for name, x in arrays.items() if isinstance(x, jax.Array)}


def evaluated(mesh: Mesh) -> dict[str, np.ndarray]:
    # It makes arrays, and before the first array processes must know of each other.
    from tests.algorithms.problem import CASES, PARAMS

    found = {}
    for name, case in CASES.items():
        q = case.build(PARAMS)
        out = jax.jit(lambda key, q=q: sy.evaluate(q, key, particles=32, mesh=mesh))(jax.random.key(2))
        whole = multihost_utils.process_allgather(bits(out), tiled=True)
        found |= {f"{name}: {part}": np.asarray(x) for part, x in whole.items()}
        found[f"{name}: about"] = np.asarray([out.log_z, jnp.asarray(out.loss, float)])
    return found


def check_looking(mesh: Mesh) -> None:
    """What people look at works, or says what to do first; every process asks."""

    def model(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", dist.Normal(z, 0.5), 1.3)
        return z

    key = jax.random.key(0)
    out = sy.evaluate(model, key, particles=4000, mesh=mesh)
    assert "Evaluation of 4000 particles: log Z" in str(out)
    exact = dist.Normal(0.0, 1.25**0.5).log_prob(1.3)
    assert abs(float(out.log_z) - float(exact)) < 0.1
    assert abs(float(out.expect(lambda t: t["z"])) - 0.8 * 1.3) < 0.1
    with pytest.raises(sy.ArgumentError, match="devices of several processes.*process_allgather"):
        out.to_dataframe()
    whole = jax.tree.map(jnp.asarray, multihost_utils.process_allgather(out, tiled=True))
    table = whole.to_dataframe()
    assert len(table) == 4000 and abs(float((table["z"] * table["weight"]).sum()) - 0.8 * 1.3) < 0.1
    np.testing.assert_allclose(whole.log_z, out.log_z, rtol=1e-6)

    def broken(s: sy.State) -> None:
        s.factor("y", jnp.where(s.sample("z", dist.Normal(0.0, 1.0)) > 0, jnp.nan, 0.0))

    with pytest.raises(sy.WeightError, match=r"of 64 particles have weight NaN"):
        sy.evaluate(broken, key, particles=64, mesh=mesh)
    assert "No result" in str(jax.jit(lambda key: sy.evaluate(broken, key, particles=64, mesh=mesh))(key))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--coordinator")
    given = parser.parse_args()
    if given.processes > 1:
        jax.distributed.initialize(given.coordinator, given.processes, given.process)
    mesh = Mesh(np.array(jax.devices()), ("particles",))
    if given.processes > 1:
        check_looking(mesh)
    found = evaluated(mesh)
    if jax.process_index() == 0:
        np.savez(given.out, allow_pickle=False, **found)


if __name__ == "__main__":
    share_context()
    main()
