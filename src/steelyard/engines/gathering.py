"""What single particles gave in Python, joined to one array per address."""

from typing import Any

import jax
import numpy as np

from steelyard.distributions.bijections import pushed
from steelyard.language.state import Run
from steelyard.maps import Map, common_origins
from steelyard.semantics.engine import Moved
from steelyard.semantics.values import Values


def together(results: list[Run]) -> Run:
    """Join what single particles gave to one array per address, of Python objects and of log densities."""
    values, traces, densities, scores, terms = map(list, zip(*results, strict=True))
    score = None if all(x is None for x in scores) else np.array([0.0 if x is None else float(x) for x in scores])
    tau, rho = _gather(traces, object, None), _gather(densities, float, 0.0)
    return Run(Values.each(_array(values, object)), tau, rho, score, _gather(terms, object, None))


def stacked(terms: Map[Any]) -> Map[Any]:
    """Return the terms of single particles as arrays where they have the same shape; zero, where there is none."""
    return Map({a: _stack(terms[a], terms.present(a)) for a in terms}, terms.masks)


def _stack(items: np.ndarray, present: Any) -> np.ndarray:
    arrays = [
        np.asarray(x, float) if there else None
        for x, there in zip(items, np.broadcast_to(present, len(items)), strict=True)
    ]
    shapes = {x.shape for x in arrays if x is not None}
    if len(shapes) > 1:
        return items
    zero = np.zeros(shapes.pop())
    return np.stack([zero if x is None else x for x in arrays])


def _gather(maps: list[Map[Any]], dtype: type, absent: Any) -> Map[Any]:
    addresses = dict.fromkeys(a for m in maps for a in m)
    masks = {a: np.array([a in m for m in maps]) for a in addresses}
    columns = {a: _array([m[a] if a in m else absent for m in maps], dtype) for a in addresses}
    return Map(columns, {a: m for a, m in masks.items() if not m.all()}, common_origins(maps))


def _array(items: list[Any], dtype: type) -> np.ndarray:
    array = np.empty(len(items), dtype)
    for index, item in enumerate(items):
        array[index] = item
    return array


def moved_together(results: list[Moved]) -> Moved:
    """Join where single particles moved to."""
    rates = np.array([float(result.acceptance) for result in results])
    return Moved(_gather([result.values for result in results], object, None), rates)


def pushed_one_by_one(bijection: Any, tau: Map[Any], particles: int, *, back: bool) -> tuple[Map[Any], dict[str, Any]]:
    """Push single particles through a bijection, and join them."""
    pairs = [pushed(bijection, dict(tau.of_particle(l)), back=back) for l in range(particles)]
    log_det = {a: np.array([float(dets[a]) for _, dets in pairs]) for a in pairs[0][1]}
    return _gather([Map(values) for values, _ in pairs], object, None), log_det


def as_objects(trace: Map[Any], particles: int) -> Map[Any]:
    """Return a trace of arrays as one of Python objects, one for each particle."""
    masks = {a: np.asarray(m) for a, m in trace.masks.items()}
    return Map({a: _objects(v, particles) for a, v in trace.items()}, masks)


def _objects(value: Any, particles: int) -> np.ndarray:
    items = np.empty(particles, object)
    for index in range(particles):
        items[index] = jax.tree.map(lambda x: x[index], value)  # noqa: B023
    return items
