"""A variational autoencoder with a discrete and a continuous latent variable: Program 1 of the paper.

z selects a mixture component, v embeds the image, x is the image; networks generate, and networks propose. Reweighted
wake-sleep, VIMCO and stochastic variational inference are three ways to train the same two programs.

    python examples/vae.py                                  # all three
    python examples/vae.py --method rws --steps 10000

Stites, Zimmermann, Wu, Sennesh and van de Meent (2021): Learning Proposals for Probabilistic Programs with Inference
Combinators, UAI. Sections 2.1 and 4.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpyro.distributions as dist
import optax
import typer
from jax import Array
from rich.console import Console
from rich.table import Table

import steelyard as sy

SIDE, CLUSTERS, EMBEDDING, HIDDEN = 8, 5, 2, 64
PIXELS = SIDE**2
METHODS = {
    "rws": sy.algorithms.rws,
    "vimco": partial(sy.propose, objective=sy.objectives.vimco),
    "svi": sy.algorithms.svi,
}


class Autoencoder(eqx.Module):
    """The generator networks eta of the model, and the proposal networks phi of the guide."""

    eta_v: eqx.nn.MLP
    eta_x: eqx.nn.MLP
    phi_z: eqx.nn.MLP
    phi_v: eqx.nn.MLP

    def __init__(self, key: Array) -> None:
        keys = jax.random.split(key, 4)
        self.eta_v = eqx.nn.MLP(CLUSTERS, 2 * EMBEDDING, HIDDEN, 1, key=keys[0])
        self.eta_x = eqx.nn.MLP(EMBEDDING, PIXELS, HIDDEN, 1, key=keys[1])
        self.phi_z = eqx.nn.MLP(PIXELS, CLUSTERS, HIDDEN, 1, key=keys[2])
        self.phi_v = eqx.nn.MLP(PIXELS + CLUSTERS, 2 * EMBEDDING, HIDDEN, 1, key=keys[3])

    def model(self, s: sy.State, x: Array) -> None:
        """p(z) p(v | z) p(x | v)"""
        z = s.sample("z", dist.Categorical(jnp.full(CLUSTERS, 1 / CLUSTERS)))
        v = s.sample("v", normal(self.eta_v(jax.nn.one_hot(z, CLUSTERS))))
        s.observe("x", dist.Normal(self.eta_x(v), 1.0), x)

    def guide(self, s: sy.State, x: Array) -> None:
        """q(z | x) q(v | x, z)"""
        z = s.sample("z", dist.Categorical(logits=self.phi_z(x)))
        s.sample("v", normal(self.phi_v(jnp.concatenate([x, jax.nn.one_hot(z, CLUSTERS)]))))


def normal(output: Array) -> dist.Normal:
    """Return the distribution that a network gives; means are wide, so that clusters begin apart."""
    mean, log_scale = jnp.split(output, 2)
    return dist.Normal(5.0 * mean, jnp.exp(log_scale))


def curve(label: Array, offset: Array) -> Array:
    """Draw a horizontal, vertical, falling or rising line, or a ring."""
    y, x = jnp.meshgrid(*[jnp.arange(SIDE) - (SIDE - 1) / 2] * 2, indexing="ij")
    distance = jnp.stack([y, x, (x - y) / 2**0.5, (x + y) / 2**0.5, jnp.hypot(x, y) - 2.5])[label] - offset
    return 4.0 * jnp.exp(-(distance**2)).ravel()


@partial(jax.jit, static_argnums=1)
def simulate(key: Array, number: int) -> tuple[Array, Array]:
    """Return images, with noise of scale 1, and which curve each of them shows."""
    keys = jax.random.split(key, 3)
    labels = jax.random.randint(keys[0], (number,), 0, CLUSTERS)
    offsets = jax.random.uniform(keys[1], (number,), minval=-1.5, maxval=1.5)
    return jax.vmap(curve)(labels, offsets) + jax.random.normal(keys[2], (number, PIXELS)), labels


@jax.jit
def true_log_z(images: Array) -> Array:
    """Return the average log evidence under the simulator, which no model can exceed in the long run."""
    labels, offsets = jnp.meshgrid(jnp.arange(CLUSTERS), jnp.linspace(-1.5, 1.5, 200))
    curves = jax.vmap(curve)(labels.ravel(), offsets.ravel())
    log_joint = jax.vmap(lambda x: dist.Normal(curves, 1.0).log_prob(x[None]).sum(-1))(images)
    return jnp.mean(jax.nn.logsumexp(log_joint, axis=-1) - jnp.log(len(curves)))


@eqx.filter_jit
def infer(networks: Autoencoder, images: Array, key: Array) -> tuple[Array, Array, Array]:
    """Return for each image an estimate of log Z, the probabilities of the clusters, and the reconstruction."""

    def one(key: Array, x: Array) -> tuple[Array, Array, Array]:
        out = sy.evaluate(sy.propose(networks.model, networks.guide), key, x, particles=200)
        return out.log_z, *out.expect(lambda trace: (jax.nn.one_hot(trace["z"], CLUSTERS), networks.eta_x(trace["v"])))

    return jax.vmap(one)(jax.random.split(key, len(images)), images)


def purity(clusters: Array, labels: Array) -> Array:
    """Return the share of images with the label that is the most frequent one in their cluster."""
    counts = jnp.zeros((CLUSTERS, CLUSTERS)).at[clusters, labels].add(1.0)
    return counts.max(axis=1).sum() / len(labels)


def figure(rows: dict[str, Array], path: Path) -> None:
    """Save some images and their reconstructions."""
    plt.figure(figsize=(8, 0.9 * len(rows)))
    for i, (name, images) in enumerate(rows.items()):
        for j in range(10):
            axis = plt.subplot(len(rows), 10, 10 * i + j + 1, xticks=[], yticks=[], ylabel="" if j else name)
            axis.imshow(images[j].reshape(SIDE, SIDE), vmin=-1.0, vmax=4.0, cmap="gray")
    path.parent.mkdir(parents=True, exist_ok=True)
    plt.savefig(path, dpi=150)
    plt.close()


def main(
    method: Literal["all", "rws", "vimco", "svi"] = "all",
    steps: Annotated[int, typer.Option(min=1)] = 2500,
    particles: Annotated[int, typer.Option(min=2)] = 10,
    batch_size: Annotated[int, typer.Option(min=1)] = 50,
    seed: int = 0,
    out: Annotated[Path, typer.Option(help="The folder for the figure.")] = Path("results"),
) -> dict[str, sy.TrainResult]:
    """Train the autoencoder, and compare log Z and clusters on images that it has not seen."""
    keys = jax.random.split(jax.random.key(seed), 5)
    images, (held_out, labels) = simulate(keys[0], 5000)[0], simulate(keys[1], 500)
    untrained = eqx.filter_jit(Autoencoder)(keys[2])
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, steps))
    table = Table("", "log Z, held out", "purity of clusters")
    table.add_row("untrained", f"{infer(untrained, held_out, keys[3])[0].mean():.1f}")
    results, pictures = {}, {"images": held_out}
    for name in METHODS if method == "all" else [method]:

        def program(networks: Autoencoder, x: Array, method: Any = METHODS[name]) -> Any:
            return method(lambda s: networks.model(s, x), lambda s: networks.guide(s, x))

        training = {"steps": steps, "particles": particles, "data": images, "batch_size": batch_size}
        results[name] = sy.train(program, untrained, optimizer=optimizer, key=keys[4], **training)
        log_z, clusters, pictures[name] = infer(results[name].models, held_out, keys[3])
        table.add_row(name, f"{log_z.mean():.1f}", f"{purity(clusters.argmax(-1), labels):.0%}")
    table.add_row("the simulator itself", f"{true_log_z(held_out):.1f}")
    figure(pictures, out / "vae.png")
    Console().print(table)
    return results


if __name__ == "__main__":
    typer.run(main)
