"""Curves: levels of a sampler, steps of a filter, steps of training."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from steelyard.errors import ArgumentError
from steelyard.inspection.levels import rows
from steelyard.inspection.plot.axes import axes_for, plain
from steelyard.semantics.evaluation import Evaluation
from steelyard.types import is_traced

NAMES = {"log_z": "log Z", "ess": "ESS"}


def levels(out: Evaluation, *, ax: Any = None) -> Any:
    """Draw the effective sample size at each level; of scans, at each step.

    Of a batch it is the mean, and in scans the smallest.

    Args:
        out: an evaluation with at least one level.
        ax: the axes to draw on; new ones, if None.

    Returns:
        The axes.

    Raises:
        ArgumentError: there is no level, or its numbers are not known yet.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> out = sy.evaluate(sy.resample(model), jax.random.key(0), particles=10)
        >>> ax = sy.plot.levels(out)
        >>> ax.get_ylabel()
        'ESS of 10'
    """
    table = rows(out)
    if not table or any(row.numbers["ESS"] is None for row in table):
        raise ArgumentError(
            "plot.levels draws levels, and there is none whose numbers are known. Call it outside of jit."
        )
    (ax,) = axes_for(1, ax, "levels")
    scans = [row for row in table if row.steps is not None]
    single = [row for row in table if row.steps is None]
    # Where there are scans the others have no step: dashed lines.
    for row in single if scans else ():
        ax.axhline(row.numbers["ESS"], linestyle="--", linewidth=1, color="gray", label=plain(row.label))
    for row in scans:
        steps = row.steps.ess if row.steps is not None else np.zeros(0)
        ax.plot(np.arange(1, len(steps) + 1), steps, marker="." if len(steps) < 50 else "", label=plain(row.label))
    if scans:
        ax.set_xlabel("step")
        ax.legend()
    else:
        places = np.arange(len(single))
        ax.plot(places, [row.numbers["ESS"] for row in single], marker="o")
        ax.set_xticks(places, [plain(row.label) for row in single], rotation=30, ha="right")
    ax.set_ylim(0, out.particles * 1.05)
    ax.set_ylabel(f"ESS of {out.particles}")
    return ax


def history(result: Any, *, axes: Any = None) -> Any:
    """Draw what happened at each step of training: loss, log Z, ESS, the norm of the gradient, a learning rate.

    Steps that were skipped, because something was not finite, are marked on the loss.

    Args:
        result: what `train` returned, or its history.
        axes: axes to draw on, one for each curve; new ones, if None.

    Returns:
        An array of axes.

    Raises:
        ArgumentError: it is no history, or there are too few axes.

    Example:
        >>> import numpy as np, steelyard as sy
        >>> x = np.linspace(1.0, 2.0, 10)
        >>> made = sy.History(loss=x, log_z=x, ess=x, gradient_norm=x, skipped=x > 3)
        >>> [ax.get_ylabel() for ax in sy.plot.history(made)]
        ['loss', 'log Z', 'ESS', 'gradient norm']
    """
    made = getattr(result, "history", result)
    if not is_dataclass(made) or not hasattr(made, "skipped"):
        raise ArgumentError(f"plot.history draws what sy.train returned, or its history; got {type(result).__name__}.")
    known = {field.name: getattr(made, field.name) for field in fields(made)}
    curves = {name: np.asarray(x, float) for name, x in known.items() if x is not None}
    skipped = np.flatnonzero(curves.pop("skipped"))
    grid = axes_for(len(curves), axes, "history")
    for ax, (name, curve) in zip(grid, curves.items(), strict=True):
        ax.plot(np.arange(1, len(curve) + 1), curve, linewidth=1)
        ax.set_xlim(0, len(curve) + 1)
        ax.set_xlabel("step")
        ax.set_ylabel(NAMES.get(name, name.replace("_", " ")))
        if name == "gradient_norm" and (curve[np.isfinite(curve)] > 0).any():
            ax.set_yscale("log", nonpositive="mask")
        if name == "loss" and len(skipped):
            label = f"{len(skipped)} skipped"
            ax.plot(
                skipped + 1, np.zeros(len(skipped)), "|", color="red", transform=ax.get_xaxis_transform(), label=label
            )
            ax.legend()
    return grid


def filtered(
    out: Evaluation,
    h: Callable[[Any], Any],
    *,
    probabilities: tuple[float, float] = (0.05, 0.95),
    label: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw what a filter knew at each step: the mean of h, and a band between two of its quantiles.

    Step 0 is the program that the filter begins with. Of a vector there is a line for each component.

    Args:
        out: an evaluation of one filter, a `scan` that keeps the variables that h reads.
        h: a function of one particle's variables at one step, which returns a number or a vector, as for
            `Evaluation.filtered`.
        probabilities: of the two quantiles.
        label: what the legend calls it; without one there is a legend only for components.
        ax: the axes to draw on; new ones, if None.

    Returns:
        The axes.

    Raises:
        ArgumentError: nothing was kept, h returns something else, or the numbers are not known yet.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def first(s): return s.sample("z", dist.Normal(0.0, 1.0))
        >>> def walk(s, z): return s.sample("z", dist.Normal(z, 1.0))
        >>> q = sy.scan(lambda q, x: sy.move(walk, q), first, None, length=3, keep=["z"])
        >>> out = sy.evaluate(q, jax.random.key(0), particles=100)
        >>> ax = sy.plot.filtered(out, lambda t: t["z"])
        >>> ax.get_xlabel(), len(ax.lines)
        ('step', 1)
    """
    if is_traced(out.log_weight) or np.ndim(out.log_weight) != 1:
        raise ArgumentError("plot.filtered draws one population: call it outside of jit, and for one run of a batch.")
    if len(probabilities) != 2:
        raise ArgumentError(f"plot.filtered draws a band between two quantiles, got probabilities={probabilities}.")
    mean, bands = out.filtered(h), out.filtered_quantiles(h, probabilities)
    if not hasattr(mean, "ndim") or mean.ndim > 2:
        raise ArgumentError(
            "plot.filtered draws numbers and vectors, and h returns something else. Choose some: lambda t: t['z'][:3]."
        )
    (ax,) = axes_for(1, ax, "filtered")
    steps, count = np.arange(len(mean)), 1 if mean.ndim == 1 else mean.shape[1]
    lines = np.asarray(mean, float).reshape(-1, count)
    low, high = np.asarray(bands, float).reshape(2, -1, count)
    names = [label] if mean.ndim == 1 else [f"{label or ''}[{n}]" for n in range(count)]
    for n, name in enumerate(names):
        (line,) = ax.plot(steps, lines[:, n], label=None if name is None else plain(name))
        ax.fill_between(steps, low[:, n], high[:, n], color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set_xlabel("step")
    ax.set_ylabel(f"mean, and quantiles {probabilities[0]:g} to {probabilities[1]:g}")
    if any(names):
        ax.legend()
    return ax
