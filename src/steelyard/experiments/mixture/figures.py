"""The figure of the mixture: the posterior of cluster and embedding, and how the levels fared."""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import steelyard as sy
from steelyard.experiments.mixture.model import CLUSTERS, Exact


def save(evaluation: sy.Evaluation, truth: Exact, out: Path) -> Path:
    """Draw the figure, and save it in the folder `out`."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    clusters, embedding, levels = figure.subplots(1, 3)
    weights = np.asarray(evaluation.normalized_weights)

    estimate = np.asarray(evaluation.expect(lambda t: jax.nn.one_hot(t["z"], CLUSTERS)))
    places = np.arange(CLUSTERS)
    clusters.bar(places - 0.2, truth.cluster, 0.4, label="exact", color="0.75")
    clusters.bar(places + 0.2, estimate, 0.4, label="estimate", color="C0")
    clusters.set(title="cluster", xlabel="z", ylabel="p(z | x)", xticks=places)
    clusters.legend(frameon=False)

    embedding.hist(np.asarray(evaluation.trace["v"]), bins=60, weights=weights, density=True, color="C0", alpha=0.6)
    embedding.plot(truth.grid, truth.density, color="black", linewidth=1)
    embedding.set(title="embedding", xlabel="v", ylabel="p(v | x)", xlim=(-4, 4.5))

    ess = [float(level.ess) / evaluation.particles for level in evaluation.levels]
    names = [f"{number}. {level.label}" for number, level in enumerate(evaluation.levels, start=1)]
    levels.barh(names, ess, color="C0")
    levels.invert_yaxis()
    levels.set(title="effective sample size, of all particles", xlim=(0, 1))

    path = out / "demo.png"
    figure.savefig(path, dpi=120)
    return path
