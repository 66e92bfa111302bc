# %% [markdown]
# # Annealed variational inference
#
# *How do I learn a sampler that finds all modes of a density, and see that it did?*
#
# The target is a ring of eight Gaussians. It is the first experiment of the paper (Table 1). A sampler walks from one broad Gaussian to the
# ring through a path of densities. At each level a network proposes a step, another one undoes it, and both learn. Because the ring is a sum of
# eight normalised densities, log Z = log 8 exactly.

# %%
import math

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import optax

import steelyard as sy

ANGLES = 2 * jnp.pi * jnp.arange(8) / 8
CENTERS = 10 * jnp.stack([jnp.cos(ANGLES), jnp.sin(ANGLES)], axis=-1)
start = dist.Normal(jnp.zeros(2), 5.0)


def log_ring(x):
    modes = dist.Normal(CENTERS, 0.5**0.5).log_prob(x[None]).sum(axis=-1)
    return jax.nn.logsumexp(modes)


# %% [markdown]
# ## The path
#
# Density number k is start^(1 - beta) ring^beta. Written as a program: draw from the start, and tilt.


# %%
def path(beta):
    def density(s):
        x = s.sample("x", start)
        s.factor("tilt", beta * (log_ring(x) - start.log_prob(x).sum()))
        return x

    return density


# %% [markdown]
# ## The kernels
#
# A kernel is a program that samples `x` again, given the old one. Mean and scale are a network with 50 hidden units. At first it
# takes a random step of unit variance.

# %%
LEVELS = 7


def network(key):
    k1, k2 = jax.random.split(key)
    return {
        "inner": jax.random.normal(k1, (50, 2)) / 2**0.5,
        "bias": jax.random.normal(k2, 50),
        "outer": jnp.zeros((4, 50)),
        "shift": jnp.zeros(4),
    }


def kernel(net):
    def step(s, x):
        hidden = jax.nn.relu(net["inner"] @ x + net["bias"])
        move, log_scale = jnp.split(net["outer"] @ hidden + net["shift"], 2)
        return s.sample("x", dist.Normal(x + move, jnp.exp(log_scale)))

    return step


# One network for each level and direction, stacked: the loop over levels is compiled once.
keys = jax.random.split(jax.random.key(0), (2, LEVELS))
between = jnp.arange(1, LEVELS) / LEVELS
untrained = {
    "forward": jax.vmap(network)(keys[0]),
    "reverse": jax.vmap(network)(keys[1]),
    "logits": jnp.log(between / (1 - between)),  # the schedule learns, too
}

# %% [markdown]
# ## The sampler
#
# `algorithms.nvi` is nested variational inference. At each level,
#
#     q_k = propose(extend(path(beta_k), prev(reverse_k)), move(forward_k, resample(q_{k-1})))
#
# and each level minimises its own divergence, so that no gradient has to travel through the whole path.


# %%
def betas(models):
    return jnp.concatenate(
        [jnp.zeros(1), jax.nn.sigmoid(models["logits"]), jnp.ones(1)]
    )


def sampler(models, levels=LEVELS, resampling=True):
    nets = jax.tree.map(
        lambda x: x[:levels], (models["forward"], models["reverse"])
    )
    return sy.algorithms.nvi(
        path,
        lambda pair: (kernel(pair[0]), kernel(pair[1])),
        (betas(models)[: levels + 1], nets),
        resampling=resampling,
    )


result = sy.train(
    sampler,
    untrained,
    optimizer=optax.adam(optax.cosine_decay_schedule(5e-3, 3000)),
    steps=3000,
    key=jax.random.key(1),
    particles=36,
    progress=False,
)

# %% [markdown]
# ## Did it find all of the ring?
#
# The effective sample size cannot tell: it is high, too, where modes were dropped. log Z can, and so can a count of the modes.


# %%
@jax.jit
def measure(models):
    def once(key):
        out = sy.evaluate(sampler(models, resampling=False), key, particles=1000)
        return out.log_z, out.ess

    return jax.vmap(once)(jax.random.split(jax.random.key(2), 100))


exact = math.log(8)
for name, models in [("untrained", untrained), ("trained", result.models)]:
    log_z, ess = measure(models)
    error = log_z.std() / 10
    print(
        f"{name:10} log Z {log_z.mean():.3f} ± {error:.3f} (exact {exact:.3f}), ESS {ess.mean():.0f} of 1000"
    )
assert abs(log_z.mean() - exact) < 0.05

final = sy.evaluate(sampler(result.models), jax.random.key(3), particles=2000)
x = final.resample(jax.random.key(4)).trace["x"]
nearest = np.argmin(
    np.linalg.norm(np.asarray(x)[:, None] - np.asarray(CENTERS), axis=-1), axis=1
)
shares = np.bincount(nearest, minlength=8) / len(x)
print("shares of the modes:", shares.round(2))
assert shares.min() > 0.07

# %%
fig, axes = plt.subplots(1, 4, figsize=(8, 2.3))
for ax, level in zip(axes, [1, 3, 5, 7], strict=True):
    out = sy.evaluate(
        sampler(result.models, level), jax.random.key(5), particles=1500
    )
    points = np.asarray(out.resample(jax.random.key(6)).trace["x"])
    ax.plot(*points.T, ".", ms=2, alpha=0.4, rasterized=True)
    ax.plot(*CENTERS.T, "+", color="gray", ms=7)
    ax.set(xlim=(-15, 15), ylim=(-15, 15), xticks=[], yticks=[], aspect="equal")
    ax.set_title(f"beta = {betas(result.models)[level]:.2f}", fontsize=10)

# %% [markdown]
# The whole of Table 1, with five methods, four lengths of the path and ten seeds, is `steelyard table1`:
# [the experiment](../../src/steelyard/experiments/annealing/README.md) compares it with the paper, cell by cell. For a density
# without networks, [tempering](02_eight_schools.py) needs no training.
