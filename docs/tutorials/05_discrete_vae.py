# %% [markdown]
# # An autoencoder with discrete latents
#
# *How do I train a model with discrete and continuous latent variables, without relaxing or enumerating them?*
#
# Small images show one of five curves, at some offset. The model does not know that. It has a discrete cluster z and a continuous
# embedding v, and networks that turn them into images; the guide has networks that go the other way. It is Program 1 of the paper.
# No relaxation is needed: score-function terms for z enter by themselves, and with wake-sleep there are none.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import optax

import steelyard as sy

SIDE, CLUSTERS, EMBEDDING, HIDDEN = 8, 5, 2, 64


def curve(label, offset):
    """A horizontal, vertical, falling or rising line, or a ring."""
    line = jnp.arange(SIDE) - (SIDE - 1) / 2
    y, x = jnp.meshgrid(line, line, indexing="ij")
    ring = jnp.hypot(x, y) - 2.5
    shapes = jnp.stack([y, x, (x - y) / 2**0.5, (x + y) / 2**0.5, ring])
    return 4 * jnp.exp(-((shapes[label] - offset) ** 2)).ravel()


@jax.jit
def simulate(key):
    k1, k2, k3 = jax.random.split(key, 3)
    labels = jax.random.randint(k1, (2000,), 0, CLUSTERS)
    offsets = jax.random.uniform(k2, (2000,), minval=-1.5, maxval=1.5)
    clean = jax.vmap(curve)(labels, offsets)
    return clean + jax.random.normal(k3, clean.shape)


images, held_out = simulate(jax.random.key(0)), simulate(jax.random.key(1))

# %% [markdown]
# ## The model and the guide
#
# Both are methods of one Equinox module, and describe one image and one particle. The embedding has two dimensions, so that we
# can integrate over it afterwards and know the evidence exactly.


# %%
class Autoencoder(eqx.Module):
    prior: eqx.nn.MLP
    decoder: eqx.nn.MLP
    cluster: eqx.nn.MLP
    embedding: eqx.nn.MLP

    def __init__(self, key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        pixels = SIDE**2
        self.prior = eqx.nn.MLP(CLUSTERS, 2 * EMBEDDING, HIDDEN, 1, key=k1)
        self.decoder = eqx.nn.MLP(EMBEDDING, pixels, HIDDEN, 1, key=k2)
        self.cluster = eqx.nn.MLP(pixels, CLUSTERS, HIDDEN, 1, key=k3)
        self.embedding = eqx.nn.MLP(
            pixels + CLUSTERS, 2 * EMBEDDING, HIDDEN, 1, key=k4
        )

    def model(self, s, x):
        z = s.sample("z", dist.Categorical(jnp.full(CLUSTERS, 1 / CLUSTERS)))
        v = s.sample("v", normal(self.prior(jax.nn.one_hot(z, CLUSTERS))))
        s.observe("x", dist.Normal(self.decoder(v), 1.0), x)

    def guide(self, s, x):
        z = s.sample("z", dist.Categorical(logits=self.cluster(x)))
        inputs = jnp.concatenate([x, jax.nn.one_hot(z, CLUSTERS)])
        s.sample("v", normal(self.embedding(inputs)))


def normal(output):
    """What a network returns, as a distribution; clusters begin apart."""
    mean, log_scale = jnp.split(output, 2)
    return dist.Normal(5 * mean, jnp.exp(log_scale))


# %% [markdown]
# ## Training
#
# A method is one word. `rws` is reweighted wake-sleep: the model follows the weighted gradient of log p, and the guide learns to
# cover the posterior. `svi` minimises -ELBO, with score-function terms for z.


# %%
def learn(method, steps=2500):
    def program(nets, x):
        return method(lambda s: nets.model(s, x), lambda s: nets.guide(s, x))

    return sy.train(
        program,
        eqx.filter_jit(Autoencoder)(jax.random.key(2)),
        optimizer=optax.adam(optax.cosine_decay_schedule(5e-3, steps)),
        steps=steps,
        key=jax.random.key(3),
        particles=10,
        data=images,
        batch_size=50,
        progress=False,
    )


results = {"wake-sleep": learn(sy.algorithms.rws), "ELBO": learn(sy.algorithms.svi)}

# %% [markdown]
# ## How good is the estimate of the evidence?
#
# After training, `propose(model, guide)` is an importance sampler for any new image. The exact evidence of the *learned* model is a sum over
# five clusters and an integral over two dimensions, which a grid does.


# %%
@eqx.filter_jit
def exact_log_z(nets, xs):
    line = jnp.linspace(-6.0, 6.0, 301)
    grid = jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)
    log_mass = -0.5 * (grid**2).sum(axis=-1)
    log_mass -= jax.nn.logsumexp(log_mass)

    def of_cluster(z):
        p = normal(nets.prior(jax.nn.one_hot(z, CLUSTERS)))
        pixels = jax.vmap(nets.decoder)(p.loc + p.scale * grid)
        squares = (xs**2).sum(-1)[:, None] - 2 * xs @ pixels.T + (pixels**2).sum(-1)
        log_density = -0.5 * squares - 0.5 * SIDE**2 * jnp.log(2 * jnp.pi)
        return jax.nn.logsumexp(log_density + log_mass, axis=1)

    each = jax.lax.map(of_cluster, jnp.arange(CLUSTERS))
    return jax.nn.logsumexp(each, axis=0) - jnp.log(CLUSTERS)


@eqx.filter_jit
def infer(nets, key, xs):
    def one(key, x):
        q = sy.propose(nets.model, nets.guide)
        out = sy.evaluate(q, key, x, particles=500)
        shown = out.expect(lambda t: nets.decoder(t["v"]))
        return out.log_z, shown

    return jax.vmap(one)(jax.random.split(key, len(xs)), xs)


found, gaps = {}, {}
for name, result in results.items():
    log_z, found[name] = infer(result.models, jax.random.key(4), held_out[:40])
    gaps[name] = np.asarray(log_z - exact_log_z(result.models, held_out[:40]))
    print(
        f"{name:10} log Z {log_z.mean():7.2f}, which is "
        f"{gaps[name].mean():+.2f} from exact on average, {np.median(gaps[name]):+.2f} in the median"
    )
assert abs(np.median(gaps["wake-sleep"])) < 0.1

# %% [markdown]
# An estimate falls short where the guide misses a part of the posterior, and no particle tells. Wake-sleep teaches the guide to cover all of it;
# the ELBO is content with a part.

# %%
fig, axes = plt.subplots(3, 10, figsize=(7, 2.4))
rows = {"images": held_out, **found}
for row, (name, pictures) in zip(axes, rows.items(), strict=True):
    row[0].set_ylabel(name, fontsize=8)
    for ax, picture in zip(row, pictures, strict=False):
        ax.imshow(picture.reshape(SIDE, SIDE), vmin=-1, vmax=4, cmap="viridis")
        ax.set(xticks=[], yticks=[])
fig.suptitle("new images, and what each autoencoder makes of them", fontsize=10)

# %% [markdown]
# Wake-sleep and the ELBO are two of many: `sy.objectives` has `iwae`, `vimco` and `dreg`, and
# [you can write your own](08_write_your_own.py). [Learning proposals](../learning.md) says what each of them minimises.
