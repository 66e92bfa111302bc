# %% [markdown]
# # Stochastic volatility: filter, smooth, learn
#
# *I have a time series with a hidden state. How do I filter it, smooth it, and learn its parameters?*
#
# Returns of a stock have a volatility that changes with time and that nobody sees. Its logarithm h follows a process that reverts to
# its mean; a return y is normal with standard deviation exp(h / 2). No Kalman filter applies. But the state has one
# dimension, so that sums over a fine grid give exact answers to compare with.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import optax
import scipy.optimize

import steelyard as sy

T = 300
truth = {"mean": -0.5, "persistence": 0.95, "volatility": 0.3}


def spread(p):
    """The standard deviation of h in the long run."""
    return p["volatility"] / (1 - p["persistence"] ** 2) ** 0.5


rng = np.random.default_rng(3)
h = truth["mean"] + spread(truth) * rng.normal(size=T)
for t in range(1, T):
    drift = truth["persistence"] * (h[t - 1] - truth["mean"])
    h[t] = truth["mean"] + drift + truth["volatility"] * rng.normal()
ys = jnp.array(np.exp(h / 2) * rng.normal(size=T))

# %% [markdown]
# ## The model
#
# Three small programs, as functions of the parameters: where the state begins, how it goes on, and a step, which goes on and observes
# a return.


# %%
def initial(p):
    def first(s):
        return s.sample("h", dist.Normal(p["mean"], spread(p)))

    return first


def transition(p):
    def go_on(s, h):
        mean = p["mean"] + p["persistence"] * (h - p["mean"])
        return s.sample("h", dist.Normal(mean, p["volatility"]))

    return go_on


def step(p, y):
    def observed(s, h):
        h = transition(p)(s, h)
        s.observe("y", dist.Normal(0.0, jnp.exp(h / 2)), y)
        return h

    return observed


# %% [markdown]
# ## Filter
#
# A bootstrap filter is a `scan` of steps, with a `resample` before each. The loop compiles once, whatever its length: do not write the
# steps out in Python. `keep` records a variable at each step, and `filtered` asks what was known of it then: E[h_t | y_1, ..., y_t].


# %%
def bootstrap(p):
    def advance(q, y):
        return sy.move(step(p, y), sy.resample(q, threshold=0.5))

    return sy.scan(advance, initial(p), ys, keep=["h"])


@jax.jit
def run(key, p):
    return sy.evaluate(bootstrap(p), key, particles=2000, smoothing=True)


out = run(jax.random.key(0), truth)
filtered = out.filtered(lambda t: t["h"])[1:]  # the first is before any data
out


# %% [markdown]
# The exact answer: on a grid, the model is a hidden Markov model, and forward and backward sums do the rest.


# %%
def on_a_grid(p, points=400):
    """Return log Z, E[h_t | y_1..t], and E[h_t | y_1..T]."""
    x, dx = np.linspace(-6, 6, points, retstep=True)
    x, dx = p["mean"] + spread(p) * x, spread(p) * dx
    mean = p["mean"] + p["persistence"] * (x - p["mean"])
    move = np.exp(-0.5 * ((x[:, None] - mean) / p["volatility"]) ** 2)
    move *= dx / (p["volatility"] * np.sqrt(2 * np.pi))
    density = np.exp(-0.5 * (np.asarray(ys)[:, None] ** 2 * np.exp(-x) + x))
    density /= np.sqrt(2 * np.pi)
    now = np.exp(-0.5 * ((x - p["mean"]) / spread(p)) ** 2)
    now, log_z, forward = now / now.sum(), 0.0, []
    for d in density:
        now = d * (move @ now)
        log_z += np.log(now.sum())
        now /= now.sum()
        forward.append(now)
    later, smooth = np.ones(points), []
    for d, now in zip(density[::-1], forward[::-1], strict=True):
        both = now * later
        smooth.append(both @ x / both.sum())
        later = move.T @ (d * later)
        later /= later.max()
    return log_z, np.array(forward) @ x, np.array(smooth[::-1])


exact_log_z, exact_filtered, exact_smoothed = on_a_grid(truth)
print(f"log Z {out.log_z:.2f}, exact {exact_log_z:.2f}")
assert abs(out.log_z - exact_log_z) < 1.5
assert np.abs(filtered - exact_filtered).mean() < 0.03

# %% [markdown]
# ## Smooth
#
# `smoothed` draws whole paths, given *all* data, from the last step back to the first; `smoothing=True` above kept what it needs. `trajectories` is
# cheaper: it follows each particle back through its ancestors. But far back they have few ancestors in common, because
# resampling never forgets which particles it dropped.

# %%
paths = out.smoothed(jax.random.key(1), 500)["h"][:, 1:]
ancestors = out.trajectories()["h"][:, 1:]
smoothed, by_ancestors = paths.mean(axis=0), out.normalized_weights @ ancestors
for name, means in [("smoothed", smoothed), ("trajectories", by_ancestors)]:
    print(f"{name:13} mean error {np.abs(means - exact_smoothed).mean():.3f}")
assert np.abs(smoothed - exact_smoothed).mean() < 0.05

fig, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
sy.plot.filtered(out, lambda t: t["h"], label="filtered, 90 %", ax=top)
steps = np.arange(1, T + 1)
top.plot(steps, smoothed, label="smoothed")
top.plot(steps, exact_smoothed, ":", label="smoothed, exact")
top.plot(steps, h, color="gray", lw=0.8, label="the hidden state")
top.set(title="log volatility", xlabel="", ylabel="")
top.legend(ncols=4, fontsize=8)
for name, draws in [("smoothed", paths), ("trajectories", ancestors[:500])]:
    distinct = [len(np.unique(draws[:, t])) for t in range(T)]
    bottom.semilogy(steps, distinct, label=name)
bottom.set(title="distinct values among 500 paths", xlabel="step", ylim=(1, 700))
bottom.legend(fontsize=8)

# %% [markdown]
# ## Learn
#
# The filter's log Z is a function of the parameters, and it can be differentiated. `vsmc` is the filter with the objective
# -log Z at every step. `train` descends it. The gradient leaves out how the parameters change *which* particles are copied, so that it
# is a little biased; the exact likelihood on the grid tells how much that costs.


# %%
def constrained(raw):
    return {
        "mean": raw["mean"],
        "persistence": jnp.tanh(raw["persistence"]),
        "volatility": jnp.exp(raw["volatility"]),
    }


def program(raw):
    p = constrained(raw)
    return sy.algorithms.vsmc(
        lambda y: step(p, y), lambda y: transition(p), over=ys, initial=initial(p)
    )


start = {"mean": 0.5, "persistence": 0.5, "volatility": 0.0}
result = sy.train(
    program,
    start,
    optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 200)),
    steps=200,
    key=jax.random.key(1),
    particles=100,
    progress=False,
)
learned = {name: float(x) for name, x in constrained(result.models).items()}


def loss(raw):
    names = ["mean", "persistence", "volatility"]
    p = constrained(dict(zip(names, raw, strict=True)))
    return -on_a_grid({name: float(x) for name, x in p.items()}, 150)[0]


best = -scipy.optimize.minimize(
    loss, list(start.values()), method="Nelder-Mead"
).fun
reached = on_a_grid(learned)[0]
print({name: round(x, 3) for name, x in learned.items()})
print(
    f"exact log likelihood: learned {reached:.2f}, the highest {best:.2f}, ", end=""
)
print(f"the parameters that made the data {exact_log_z:.2f}")
assert best - 1.0 < reached < best + 0.01

# %%
fig, ax = plt.subplots()
ax.plot(result.history.log_z, lw=1, label="log Z of the filter, 100 particles")
ax.axhline(best, color="gray", linestyle="--", lw=1, label="the highest, exact")
ax.set(
    xlabel="step of training",
    title="learning the parameters",
    ylim=(best - 40, best + 8),
)
ax.legend(fontsize=8)

# %% [markdown]
# A better filter proposes with a look at the data: give `smc` or `vsmc` a program for each step that draws h where y makes it
# likely, as a network if you like. [Learning proposals](../learning.md) has the objectives, and
# [composing samplers](../samplers.md) the loops.
