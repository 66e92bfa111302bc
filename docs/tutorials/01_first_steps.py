# %% [markdown]
# # From importance sampling to SMC in ten minutes
#
# *How do I get a posterior and its evidence, and what do I do when importance sampling fails?*
#
# You need nothing but JAX and NumPyro's distributions. Every number on this page is compared with an exact one.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist

import steelyard as sy

# %% [markdown]
# ## A model
#
# A program is a function of a state `s` and data. It describes *one* particle: there are no batch dimensions and no plates.


# %%
def model(s, x):
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    return z


x = 1.3
out = sy.evaluate(model, jax.random.key(0), x, particles=1000)
out

# %% [markdown]
# `evaluate` ran the program 1,000 times. Each particle drew `z` from the prior, and its weight is the density of the
# observation. That is importance sampling with the prior as the proposal. `log_z` is the logarithm of the average weight: an
# estimate of the evidence p(x). Here it is known, because x is normal with variance 1 + 0.25.

# %%
exact = dist.Normal(0.0, 1.25**0.5).log_prob(x)
print(f"log Z {out.log_z:.3f}, exact {exact:.3f}")
print(f"posterior mean {out.expect(lambda t: t['z']):.3f}, exact {x / 1.25:.3f}")
assert abs(out.log_z - exact) < 0.1

# %% [markdown]
# ## A proposal
#
# A guide is a program, too. `propose(model, guide)` draws from the guide and weighs for the model: the weight is the density of
# the model divided by that of the guide. Nobody writes this ratio by hand.


# %%
def guide(s, x):
    s.sample("z", dist.Normal(0.8 * x, 0.5))


q = sy.propose(model, guide)
better = sy.evaluate(q, jax.random.key(0), x, particles=1000)
print(f"effective sample size: prior {out.ess:.0f}, guide {better.ess:.0f} of 1000")
assert abs(better.log_z - exact) < 0.02

# %% [markdown]
# ## Where importance sampling ends
#
# Now a time series: a hidden state walks, and we see it through noise. Its exact log Z comes from a Kalman filter.

# %%
T, DECAY, WALK, NOISE = 100, 0.95, 0.3, 0.5
rng = np.random.default_rng(0)
states = np.zeros(T)
for t in range(T):
    states[t] = DECAY * (states[t - 1] if t else 0.0) + WALK * rng.normal()
ys = jnp.array(states + NOISE * rng.normal(size=T))


def kalman(ys):
    """Return log p(y_1, ..., y_T)."""
    mean, variance, log_z = 0.0, 0.0, 0.0
    for y in np.asarray(ys, float):
        mean, variance = DECAY * mean, DECAY**2 * variance + WALK**2
        log_z += -0.5 * (
            np.log(2 * np.pi * (variance + NOISE**2))
            + (y - mean) ** 2 / (variance + NOISE**2)
        )
        gain = variance / (variance + NOISE**2)
        mean, variance = mean + gain * (y - mean), (1 - gain) * variance
    return log_z


exact = kalman(ys)

# %% [markdown]
# One step of the series is a program that samples a state and observes a datum. `move` runs it after what came before,
# and replaces the old state by the new one. `scan` repeats it: the loop is compiled once, whatever its length.


# %%
def initial(s):
    s.factor(
        "y", 0.0
    )  # a step has a "y", so what comes before it has one too; it weighs nothing
    return s.sample("z", dist.Normal(0.0, 1e-3))


def transition(y):
    def step(s, z):
        z = s.sample("z", dist.Normal(DECAY * z, WALK))
        s.observe("y", dist.Normal(z, NOISE), y)
        return z

    return step


def importance(q, y):
    return sy.move(transition(y), q)


def smc(q, y):
    return sy.move(transition(y), sy.resample(q))


def run(step, key):
    return sy.evaluate(sy.scan(step, initial, ys, keep=["z"]), key, particles=1000)


def log_z(step):
    """Twenty independent runs: `vmap` over keys, and one compilation."""
    return jax.jit(jax.vmap(lambda key: run(step, key).log_z))(
        jax.random.split(jax.random.key(1), 20)
    )


estimates = {"importance sampling": log_z(importance), "SMC": log_z(smc)}
for name, values in estimates.items():
    print(
        f"{name:20} log Z between {values.min():7.2f} and {values.max():7.2f}   (exact {exact:.2f})"
    )

# %% [markdown]
# The two programs differ in one word, `resample`. Without it, a hundred steps leave all the weight on one particle. With it,
# particles that fit the data are copied and others are dropped, step by step. Both estimates of Z are unbiased; only one of
# them has a variance that you can live with.

# %%
assert abs(jax.nn.logsumexp(estimates["SMC"]) - jnp.log(20) - exact) < 0.3
assert estimates["importance sampling"].max() < exact - 5

# %% [markdown]
# `trajectories` follows each particle back to the start, through its ancestors. Their weighted mean is the posterior mean of
# the whole path, given all data.

# %%
out = jax.jit(lambda key: run(smc, key))(jax.random.key(2))
paths = out.trajectories()["z"][:, 1:]

fig, (left, right) = plt.subplots(1, 2, width_ratios=[1, 2])
for i, values in enumerate(estimates.values()):
    left.plot(np.full(20, i), values, "o", alpha=0.6, ms=5)
left.axhline(exact, linestyle="--", color="gray", lw=1)
left.set(
    xticks=[0, 1],
    xticklabels=["importance", "SMC"],
    xlim=(-0.5, 1.5),
    title="log Z, 20 runs; dashed: exact",
)
right.plot(ys, ".", color="gray", ms=4, label="data")
right.plot(states, label="hidden states")
right.plot(out.normalized_weights @ paths, label="posterior mean")
right.set(xlabel="step", title="what SMC makes of the data")
right.legend(ncols=3, fontsize=8)

# %% [markdown]
# ## Check it before you trust it
#
# `show` prints what you have composed. `check` reads it and remarks on what looks wrong. And where all variables are finite, weights
# can be *proved* right: the next line goes through every outcome of a small filter, resampling included.

# %%
sy.show(sy.scan(smc, initial, ys, keep=["z"]))


# %%
def coin(s):
    return s.sample("z", dist.Bernoulli(0.3))


def flip(s, z):
    z = s.sample("z", dist.Bernoulli(0.2 + 0.5 * z))
    s.observe("y", dist.Bernoulli(0.1 + 0.7 * z), 1)
    return z


sy.testing.assert_properly_weighted(
    sy.move(flip, sy.resample(sy.move(flip, coin))), particles=2
)

# %% [markdown]
# Next: [a NumPyro model, tempered](02_eight_schools.py), or [filters, smoothers and learning](03_stochastic_volatility.py).
