# %% [markdown]
# # Variables that come and go
#
# *Does the rate of these events change? If so, when? And are the weights right when a variable is only there in some particles?*
#
# Twelve daily counts. Perhaps one rate explains them all; perhaps it changes on some day. A model that can say both has variables that
# exist in some particles and not in others. All variables are discrete here, so that everything can be compared with exact sums.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import scipy.stats

import steelyard as sy

counts = jnp.array([3, 1, 2, 5, 4, 1, 4, 6, 7, 3, 5, 6])
DAYS, RATES = counts.size, jnp.array([1.0, 2.0, 4.0, 8.0])
any_rate = dist.Categorical(jnp.full(4, 1 / 4))
any_day = dist.Categorical(jnp.full(DAYS, 1 / DAYS))

# %% [markdown]
# ## The model
#
# Inside of `s.when(flag)`, variables exist only in the particles where the flag holds. There is no Python `if`, so that all
# particles still run at once.


# %%
def model(s, counts):
    before = s.sample("before", any_rate)
    changes = s.sample("changes", dist.Bernoulli(0.5)) == 1
    with s.when(changes):
        day = s.sample("day", any_day)
        after = s.sample("after", any_rate)
    changed = changes & (jnp.arange(DAYS) >= day)
    rate = jnp.where(changed, RATES[after], RATES[before])
    s.observe("counts", dist.Poisson(rate), counts)


out = sy.evaluate(model, jax.random.key(0), counts, particles=5000)
print("particles with a day of change:", int(out.trace.present("day").sum()))
print(
    f"P(the rate changes | counts) = {out.expect(lambda t: 1.0 * t['changes']):.3f}"
)

# %% [markdown]
# A variable that some particles lack has no mean of its own. Ask for it among the particles that have it:

# %%
day = out.expect(lambda t: t["day"], given=["day"])
print(f"E[day | it changes, counts] = {day:.2f}")

# %% [markdown]
# ## A jump
#
# Particles from the prior waste their weight. `metropolis` moves them, and its proposal is a program. This one proposes to change
# *whether there is a change*: the variables `day` and `after` appear or vanish with it. That is a reversible jump, and its acceptance ratio
# follows from the two programs.


# %%
def jump(s, _):
    changes = s.sample("changes", dist.Bernoulli(0.5)) == 1
    with s.when(changes):
        s.sample("day", any_day)
        s.sample("after", any_rate)


def other_rate(s, _):
    s.sample("before", any_rate)


def sweep(q):
    return sy.metropolis(other_rate, sy.metropolis(jump, q, steps=5), steps=5)


def level(q, beta):
    """Let the data in little by little, and move."""
    return sweep(sy.resample(sy.propose(sy.temper(model, beta), q)))


q = sy.scan(level, sy.temper(model, 0.0), jnp.array([0.1, 0.3, 0.6, 1.0]))
moved = jax.jit(lambda key: sy.evaluate(q, key, counts, particles=5000))(
    jax.random.key(1)
)
moved

# %% [markdown]
# ## The exact answer
#
# Four rates without a change, and 4 × 12 × 4 ways with one.

# %%
rates = np.asarray(RATES)


def likelihood(rate):
    return scipy.stats.poisson.pmf(np.asarray(counts), rate).prod()


constant = sum(likelihood(b) / 8 for b in rates)
joint = np.zeros(DAYS)
for day in range(DAYS):
    for b in rates:
        for a in rates:
            rate = np.where(np.arange(DAYS) >= day, a, b)
            joint[day] += likelihood(rate) / (2 * 4 * 4 * DAYS)
exact_log_z = np.log(constant + joint.sum())
exact_change = joint.sum() / (constant + joint.sum())

for name, result in [("prior", out), ("tempered, with jumps", moved)]:
    p = result.expect(lambda t: 1.0 * t["changes"])
    print(f"{name:21} log Z {result.log_z:.3f}  ESS {result.ess:5.0f}  P {p:.3f}")
print(f"{'exact':21} log Z {exact_log_z:.3f}             P {exact_change:.3f}")
assert abs(moved.log_z - exact_log_z) < 0.1
assert abs(moved.expect(lambda t: 1.0 * t["changes"]) - exact_change) < 0.04

# %%
given = moved.trace.present("day") * moved.normalized_weights
found = np.bincount(moved.trace["day"], np.asarray(given), DAYS) / given.sum()
fig, (left, right) = plt.subplots(1, 2)
left.bar(np.arange(DAYS), counts)
left.set(xlabel="day", title="counts")
at = np.arange(DAYS)
right.bar(at - 0.2, found, 0.4, label="sampled")
right.bar(at + 0.2, joint / joint.sum(), 0.4, label="exact")
right.set(xlabel="day", title="when it changes, if it does")
right.legend(fontsize=8)
assert abs(found - joint / joint.sum()).max() < 0.05

# %% [markdown]
# ## A proof for a small one
#
# Close to exact is not a proof: a wrong acceptance ratio can be wrong by little. `assert_properly_weighted` goes through *every* outcome of a
# sampler, with its probability, and compares the weighted sum with the density: the definition of proper weighting, to rounding error.


# %%
def small(s):
    changes = s.sample("changes", dist.Bernoulli(0.3)) == 1
    with s.when(changes):
        after = s.sample("after", dist.Bernoulli(0.6))
    s.factor("data", jnp.where(changes, 0.3 + 0.8 * after, -0.4))


def small_jump(s, _):
    with s.when(s.sample("changes", dist.Bernoulli(0.7)) == 1):
        s.sample("after", dist.Bernoulli(0.2))


q = sy.resample(sy.metropolis(small_jump, small))
sy.testing.assert_properly_weighted(q, particles=2)


# %% [markdown]
# The same holds for a bad proposal. The next one ignores the data and leaves `after` as it was, or to the prior. That costs effective
# sample size, and nothing else.


# %%
def careless(s, _):
    s.sample("changes", dist.Bernoulli(0.9))


q = sy.propose(sy.extend(small, sy.prev(careless)), sy.move(careless, small))
sy.testing.assert_properly_weighted(q, particles=1)
print(f"ESS {sy.evaluate(q, jax.random.key(2), particles=1000).ess:.0f} of 1000")
