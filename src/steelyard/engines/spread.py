"""Evaluations on many devices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from steelyard.devices.layout import AXIS, SPLIT, WHOLE
from steelyard.estimates.ancestry import Kept
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.values import Values, is_static


def on_devices(run: Callable[..., Evaluation], mesh: Mesh) -> Callable[..., Evaluation]:
    """Return the function that evaluates with the particles laid over a mesh, and leaves them there."""

    def spread(*args: Any) -> Evaluation:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            # What is still to be taken from ancestors is taken here, where it is known how.
            return _placed(run(*args), mesh)

    return spread


def _placed(e: Evaluation, mesh: Mesh) -> Evaluation:
    """Return an evaluation on the devices of a mesh: what has a particle axis is shared out, all else is on each."""
    split, whole = NamedSharding(mesh, SPLIT), NamedSharding(mesh, WHOLE)

    def put(tree: Any, where: NamedSharding) -> Any:
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(jnp.asarray(x), where), tree)

    steps = NamedSharding(mesh, jax.sharding.PartitionSpec(None, AXIS))

    def history(kept: Kept) -> Kept:
        first, w, last = put((kept.first, kept.first_log_weight, kept.last), split)
        values, log_weight, ancestors = put((kept.values, kept.log_weight, kept.ancestors), steps)
        return Kept(first, values, w, log_weight, ancestors, last, kept.complete)

    def values(c: Values) -> Values:
        leaves = [x if is_static(x) else put(x, split if v else whole) for x, v in zip(c.leaves, c.varies, strict=True)]
        return replace(c, leaves=tuple(leaves), score=put(c.score, split))

    record = e.record
    record = replace(
        record,
        levels=put(record.levels, whole),
        ancestors=put(record.ancestors, split),
        loss=put(record.loss, whole),
        histories=tuple(map(history, record.histories)),
        found=put(record.found, whole),
        pointwise=put(record.pointwise, split),
        observed=put(record.observed, whole),
    )
    trace, log_density, log_weight = put((e.trace, e.log_density, e.log_weight), split)
    facts = put(e.facts, split)
    return Evaluation(values(e.values), trace, log_density, log_weight, record, facts)
