"""When two evaluations are the same, and what an evaluation says about its own densities."""

from typing import Any

import numpy as np

import steelyard as sy
from steelyard.maps import Map


def present(m: Map[Any], address: str, particles: int) -> np.ndarray:
    """Return which particles hold an address."""
    return np.broadcast_to(np.asarray(m.present(address)), (particles,))


def assert_same(left: sy.Evaluation, right: sy.Evaluation) -> None:
    """Check that trace, presence, log densities, weights, values and ancestors are the same, up to rounding."""
    assert_same_particles(left, right)
    assert_same_value(left.value, right.value)


def assert_same_particles(left: sy.Evaluation, right: sy.Evaluation) -> None:
    """Check everything but the values."""
    _assert_same_map(left.trace, right.trace, left.particles)
    _assert_same_map(left.log_density, right.log_density, left.particles)
    np.testing.assert_allclose(left.log_weight, right.log_weight, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(_ancestors(left), _ancestors(right))


def _ancestors(out: sy.Evaluation) -> Any:
    """Return the ancestors; each particle is its own where nothing was resampled."""
    return np.arange(out.particles) if out.ancestors is None else out.ancestors


def _assert_same_map(left: Map[Any], right: Map[Any], particles: int) -> None:
    # An engine need not list an address that no particle holds.
    for address in {*left, *right}:
        where = present(left, address, particles)
        np.testing.assert_array_equal(where, present(right, address, particles), err_msg=address)
        if where.any():
            ours, theirs = (np.asarray(m[address])[where].astype(float) for m in (left, right))
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=address)


def assert_same_value(left: Any, right: Any) -> None:
    """Check what programs returned: numbers, a dictionary of them, or nothing, for which an engine may list Nones."""
    match left, right:
        case dict(), dict():
            assert left.keys() == right.keys()
            for name in left:
                np.testing.assert_array_equal(left[name], right[name])
        case (None, _) | (_, None):
            assert all(value is None for side in (left, right) if side is not None for value in side)
        case _:
            np.testing.assert_array_equal(left, right)


def log_density(out: sy.Evaluation) -> np.ndarray:
    """Return the log density of each particle's trace, to which absent variables contribute nothing."""
    terms = [
        np.where(present(out.log_density, a, out.particles), np.asarray(rho), 0.0) for a, rho in out.log_density.items()
    ]
    return np.sum(terms, axis=0) if terms else np.zeros(out.particles)


def trace_of(out: sy.Evaluation, particle: int) -> dict[str, Any]:
    """Return the trace of one particle."""
    held = [a for a in out.trace if present(out.trace, a, out.particles)[particle]]
    return {a: np.asarray(out.trace[a][particle]).item() for a in held}
