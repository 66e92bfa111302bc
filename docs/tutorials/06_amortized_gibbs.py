# %% [markdown]
# # Amortized Gibbs, and tracking
#
# *My model has too many variables to propose at once. How do I learn to update them block by block?*
#
# A Gibbs sampler updates one block of variables after the other, but needs their conditional distributions. *Amortized population Gibbs* (Wu et al., 2020)
# learns them: for each block there is a network that proposes it, given the data and the other blocks. Particles are resampled in between, and
# whatever the networks propose is weighted, so that the result is right before they have learned anything, and good afterwards.

# %%
import itertools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import optax

import steelyard as sy

# %% [markdown]
# ## A mixture, where we know the answer
#
# Fourteen points, each from one of two clusters. The unknowns are two means, and fourteen assignments z.

# %%
N, CENTRES, SPREAD, NOISE = 14, jnp.array([-1.5, 1.5]), 1.0, 0.7


def model(x):
    def program(s):
        means = s.sample("means", dist.Normal(CENTRES, SPREAD))
        z = s.sample("z", dist.Categorical(jnp.full((N, 2), 0.5)))
        s.observe("x", dist.Normal(means[z], NOISE), x)
        return means, z

    return program


@jax.jit
@jax.vmap
def simulate(key):
    k1, k2, k3 = jax.random.split(key, 3)
    means = CENTRES + SPREAD * jax.random.normal(k1, (2,))
    z = jax.random.randint(k2, (N,), 0, 2)
    return means[z] + NOISE * jax.random.normal(k3, (N,))


data = simulate(jax.random.split(jax.random.key(0), 1000))
new = simulate(jax.random.split(jax.random.key(1), 20))


# %% [markdown]
# The exact posterior mean of the two means is a sum over all 16,384 assignments; given those, the means are normal.


# %%
def exact_means(x):
    z = np.array(list(itertools.product([0, 1], repeat=N)))
    x, log_p, means = np.asarray(x, float), 0.0, []
    ratio = (SPREAD / NOISE) ** 2
    for k in range(2):
        mine, y = z == k, x - float(CENTRES[k])
        n, total, squares = mine.sum(1), mine @ y, mine @ y**2
        means.append(float(CENTRES[k]) + total * ratio / (1 + n * ratio))
        log_p = log_p - 0.5 * np.log1p(n * ratio) - 0.5 * squares / NOISE**2
        log_p = log_p + 0.5 * total**2 * ratio / (1 + n * ratio) / NOISE**2
    p = np.exp(log_p - log_p.max())
    return np.stack(means, axis=1).T @ p / p.sum()


exact = np.array([exact_means(x) for x in new])

# %% [markdown]
# ## Two kernels to learn
#
# A kernel is a program that gets what the model returned, and samples its block anew. Usually it is a network. Here it is a formula with three unknown numbers,
# so that we know what they should learn: those of the true conditional distributions.


# %%
def update_z(p, x):
    def kernel(s, value):
        means, _ = value
        score = -jnp.exp(p["sharpness"]) * (x[:, None] - means) ** 2
        s.sample("z", dist.Categorical(logits=score))

    return kernel


def update_means(p, x):
    def kernel(s, value):
        _, z = value
        mine = jax.nn.one_hot(z, 2)
        size = mine.sum(axis=0) + jnp.exp(p["prior"])
        mean = CENTRES + (x @ mine - mine.sum(axis=0) * CENTRES) / size
        s.sample("means", dist.Normal(mean, jnp.exp(p["scale"]) / jnp.sqrt(size)))

    return kernel


def sampler(p, x, sweeps=3):
    kernels = [update_z(p, x), update_means(p, x)]
    return sy.algorithms.apg(model(x), model(x), kernels, sweeps=sweeps)


untrained = {
    "sharpness": jnp.log(0.1),
    "prior": jnp.log(2.0),
    "scale": jnp.log(2.0),
}
result = sy.train(
    sampler,
    untrained,
    optimizer=optax.adam(optax.cosine_decay_schedule(0.04, 250)),
    steps=250,
    key=jax.random.key(2),
    particles=20,
    data=data,
    batch_size=20,
    progress=False,
)
right = {
    "sharpness": 1 / (2 * NOISE**2),
    "prior": (NOISE / SPREAD) ** 2,
    "scale": NOISE,
}
for name, value in right.items():
    number = jnp.exp(result.models[name])
    print(f"{name:10} learned {number:.3f}, exact {value:.3f}")
    assert abs(jnp.log(number / value)) < 0.1

# %% [markdown]
# ## What sweeps are good for
#
# The first particles come from the prior, which knows nothing of the data. Sweeps repair them, on data sets that were not seen in training:


# %%
def errors(q, particles):
    """The error on each data set, averaged over 20 keys."""

    def one(key, x):
        return sy.evaluate(q(x), key, particles=particles).expect(
            lambda t: t["means"]
        )

    keys = jax.random.split(jax.random.key(4), (20, len(new)))
    found = jax.jit(jax.vmap(jax.vmap(one), in_axes=(0, None)))(keys, new)
    return np.abs(np.asarray(found) - exact).mean(axis=(0, 2))


learned = result.models
found = {
    "20 particles, no sweep": errors(model, 20),
    "1 sweep": errors(lambda x: sampler(learned, x, 1), 20),
    "20 sweeps, untrained": errors(lambda x: sampler(untrained, x, 20), 20),
    "20 sweeps": errors(lambda x: sampler(learned, x, 20), 20),
    "1 sweep, 400 particles": errors(lambda x: sampler(learned, x, 1), 400),
}
for name, error in found.items():
    se = error.std(ddof=1) / len(new) ** 0.5
    print(f"{name:24} error of the means {error.mean():.3f} ± {se:.3f}")
gain = found["1 sweep, 400 particles"] - found["20 sweeps"]
se = gain.std(ddof=1) / len(new) ** 0.5
print(f"20 sweeps are better than 400 particles by {gain.mean():.3f} ± {se:.3f}")
assert found["20 sweeps"].mean() < 0.25
assert found["20 sweeps"].mean() < found["20 particles, no sweep"].mean() / 2
assert found["20 sweeps"].mean() < found["20 sweeps, untrained"].mean()

# %% [markdown]
# With 20 particles, sweeps help, and more so with kernels that have learned. The last two rows are equal work: 20 sweeps of 20 particles, and one sweep of 400. On a
# problem this small the difference is within its error, so nothing follows from it. Sweeps pay where no number of first particles is enough, as in the videos
# below; the table of that experiment compares them at equal work.
#
# Sweeps repair the particles, not log Z: its estimate is that of the first proposal, which from the prior is poor. Where you need log Z, learn a first
# proposal as well, or [temper](02_eight_schools.py).

# %% [markdown]
# ## The same, for videos
#
# The paper's second experiment tracks objects that nobody labelled. The blocks are what the objects look like, and where they are in each frame. Networks
# that were trained on simulated videos are part of the package. This uses them on a new one.

# %%
from steelyard.experiments.tracking import cells, evaluation, parameters, rows

video = cells.held_out(objects=3, length=10, count=1)
nets = parameters.load(parameters.path("apg"), video.frames.shape[-1])
scene = cells.explain(rows.Row("APG", "apg", 20, 5), nets, video, 0)
off = evaluation.tracked(scene, video).mean
print(f"objects are found within {off:.2f} pixels of where they are")
assert off < 1.0

# %%
one = jax.tree.map(lambda x: x[0], scene)
explained = evaluation.reconstruction(one, video.frames.shape[-1])
fig = plt.figure(figsize=(7, 4))
top, bottom = fig.subfigures(2, 1, height_ratios=[1, 1.1])
grid = top.subplots(2, 5)
for i, t in enumerate([0, 2, 4, 6, 8]):
    for ax, frame in zip(
        grid[:, i], [video.frames[0, t], explained[t]], strict=True
    ):
        ax.imshow(frame, cmap="viridis", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    grid[0, i].set_title(f"frame {t + 1}", fontsize=8)
grid[0, 0].set_ylabel("video", fontsize=8)
grid[1, 0].set_ylabel("found", fontsize=8)
ax = bottom.subplots()
ax.boxplot(list(found.values()), orientation="horizontal", tick_labels=list(found))
ax.set_title("the mixture: error of the means", fontsize=9)

# %% [markdown]
# [The experiment](../../src/steelyard/experiments/tracking/README.md) has the whole of Table 2, and how the networks were trained.
