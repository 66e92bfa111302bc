"""Particles in the form that ArviZ takes: `InferenceData` below version 1, `xarray.DataTree` from there on."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from steelyard.errors import ArgumentError
from steelyard.estimates.exports import as_arviz
from steelyard.interop.particles import arrays, check_population
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.record import used_steps
from steelyard.types import Count, Key

PLACE = "Evaluation.to_arviz"
STATISTICS = ("log_z_increment", "ess", "max_weight")


@as_arviz.register
def to_arviz(out: Evaluation, key: Key | None, draws: Count | None) -> Any:
    """Return groups of draws and statistics; see `Evaluation.to_arviz`."""
    try:
        import arviz
    except ImportError as error:
        raise ArgumentError(f"{PLACE} needs ArviZ: pip install 'steelyard[arviz]'.") from error
    if key is None and draws is not None:
        raise ArgumentError(
            f"{PLACE}: draws are made at random. Give a key as well: to_arviz(jax.random.key(0), 1000)."
        )
    check_population(out, PLACE)
    return joined(groups(out, key, draws), as_tree=int(arviz.__version__.split(".")[0]) >= 1)


def joined(datasets: Mapping[str, Any], *, as_tree: bool) -> Any:
    """Return groups as one thing: as a tree, or as ArviZ below version 1 has them."""
    if as_tree:
        import xarray

        return xarray.DataTree.from_dict(datasets)
    import arviz

    return arviz.InferenceData(**datasets)


def groups(out: Evaluation, key: Key | None, draws: Count | None) -> dict[str, Any]:
    """Return the group of each name as an `xarray.Dataset`."""
    import xarray

    chosen = out if key is None else out.resample(key, draws)
    sample = {"chain": [0], "draw": np.arange(chosen.particles)}

    def group(variables: Mapping[str, Any], **coordinates: Any) -> Any:
        about = {"inference_library": "steelyard"}
        return xarray.Dataset(variables, coords={**sample, **coordinates}, attrs=about)

    def each(held: Any) -> Any:
        variables = {a: _variable(a, x) for a, x in arrays(held, chosen.particles).items()}
        axes = (pair for dims, x in variables.values() for pair in zip(dims, x.shape, strict=True))
        return group(variables, **{dim: np.arange(size) for dim, size in axes if dim not in sample})

    labels, statistics = _levels(out)
    stats: dict[str, Any] = {"log_evidence": ((), np.asarray(out.log_z))}
    stats |= {name: (("level",), column) for name, column in statistics.items()}
    if key is None:
        stats["log_weight"] = (("chain", "draw"), np.asarray(out.log_weight)[None])
    found = {"posterior": each(chosen.trace), "sample_stats": group(stats, **({"level": labels} if labels else {}))}
    if not chosen.pointwise:
        return found
    data = {a: _plain(a, x) for a, x in _observed(out).items()}
    axes = {dim: np.arange(size) for dims, x in data.values() for dim, size in zip(dims, x.shape, strict=True)}
    about = {"inference_library": "steelyard"}
    observed = {"observed_data": xarray.Dataset(data, coords=axes, attrs=about)} if data else {}
    return {**found, "log_likelihood": each(chosen.pointwise), **observed}


def _observed(out: Evaluation) -> dict[str, np.ndarray]:
    """Return what was observed, as one array for each leaf of each address, where all particles observed the same."""
    held = {a: x.value for a, x in out.record.observed.items() if bool(np.all(x.is_shared))}
    leaves = ((a, path, x) for a, tree in held.items() for path, x in jax.tree.leaves_with_path(tree))
    return {f"{a}{jax.tree_util.keystr(path)}": np.asarray(x) for a, path, x in leaves}


def _variable(address: str, array: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    if address in ("chain", "draw"):
        raise ArgumentError(
            f"{PLACE}: {address!r} is the name of an axis there. Give the variable another address: "
            f"rename(q, {{{address!r}: ...}})."
        )
    if array.dtype == object:
        raise ArgumentError(
            f"{PLACE}: the values at {address!r} are no numbers, or their shapes differ between particles. "
            f"Evaluation.to_dataframe takes them as they are."
        )
    dims, _ = _plain(address, array[0])
    return ("chain", "draw", *dims), array[None]


def _plain(address: str, array: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    return tuple(f"{address}_dim_{i}" for i in range(array.ndim)), array


def _levels(out: Evaluation) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return the labels of levels, the steps of a loop one by one, and for each statistic its values."""
    labels: list[str] = []
    columns: dict[str, list[np.ndarray]] = {name: [] for name in STATISTICS}
    for level in out.levels:
        numbers = np.stack(np.broadcast_arrays(*(np.asarray(getattr(level, name)) for name in STATISTICS)))
        steps = np.argwhere(used_steps(level, numbers.shape[1:]))
        labels += [f"{level.label} {', '.join(str(i + 1) for i in step)}".strip() for step in steps]
        for name, column in zip(STATISTICS, numbers, strict=True):
            columns[name].append(column[tuple(steps.T)].ravel())
    return labels, {name: np.concatenate(column) for name, column in columns.items()} if labels else {}
