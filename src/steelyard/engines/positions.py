"""Where particles are in unconstrained coordinates."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from steelyard.distributions.coordinates import Placed, Position
from steelyard.language.programs import Program
from steelyard.maps import Map
from steelyard.semantics.engine import Engine, Trace
from steelyard.semantics.values import Values


def placed(tau: Trace, only: Sequence[str] | None) -> Trace:
    """Return the trace with a question after the position of each variable, or of these."""
    asked = {a: Placed(tau[a], only is not None) if only is None or a in only else tau[a] for a in tau}
    return Map(asked, tau.masks)


def positions(engine: Engine, p: Program, c0: Values, tau: Trace, only: Sequence[str] | None) -> dict[str, Any]:
    """Return the unconstrained coordinates of the continuous variables of all particles, or of these variables."""
    trace = engine.at(p, c0, placed(tau, only)).trace
    if engine.sees_all_addresses:
        return {a: trace[a].coordinates for a in trace if isinstance(trace[a], Position)}
    columns = {a: [x for x in trace[a]] for a in trace if trace.present(a) is True}
    return {
        a: jax.tree.map(lambda *xs: np.stack(xs), *(x.coordinates for x in column))
        for a, column in columns.items()
        if all(isinstance(x, Position) for x in column)
    }
