# %% [markdown]
# # Eight schools, with NumPyro's model
#
# *I have a NumPyro model. How do I get its posterior and its evidence without a guide?*
#
# Take the model as it is, let the data in little by little, and move the particles with a kernel of BlackJAX. That is *tempered
# sequential Monte Carlo*. It needs no guide, no reparameterisation and no warm-up, and it returns log Z.

# %%
from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import steelyard as sy

# %% [markdown]
# ## The model
#
# Eight schools report the effect of a coaching programme, each with a standard error (Rubin, 1981). The true effects share a
# mean and a scale. This is the *centred* form, which is hard for a single chain: where `tau` is small, the effects are squeezed
# together, and a step size that fits there is too small everywhere else.

# %%
effects = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
errors = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools(effects, errors):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


# %% [markdown]
# ## The sampler
#
# `from_numpyro` makes it a program. `tempered` begins at the prior and raises the power of the likelihood from 0 to 1.
# `adaptive` finds the powers on the way, and tunes the step size and the mass matrix of the kernel, which we leave open here.

# %%
model = sy.from_numpyro(schools)
hmc = partial(blackjax.hmc, num_integration_steps=10)
pilot_sampler = sy.algorithms.tempered(model, hmc, sy.adaptive(ess=0.95), steps=10)


@partial(jax.jit, static_argnums=0)
def run(sampler, key):
    return sy.evaluate(sampler, key, effects, errors, particles=2000)


pilot = run(pilot_sampler, jax.random.key(0))
pilot

# %% [markdown]
# What is chosen from the particles, and used on the same particles, costs a little bias. For a number that you publish, run
# again with what was found, and another key. Then log Z is unbiased, with nothing to argue about.

# %%
schedule = sy.found(pilot)
out = run(sy.algorithms.tempered(model, hmc, schedule, steps=10), jax.random.key(1))
print(f"log Z {out.log_z:.3f}, effective sample size {out.ess:.0f}")

# %% [markdown]
# ## The exact answer
#
# Given `mu` and `tau`, the effects can be integrated out: school i reports a normal number with variance tau² + error².
# That leaves two dimensions for a grid.

# %%
mu = np.linspace(-30, 40, 1401)[:, None]
u = ((np.arange(4000) + 0.5) / 4000)[None]  # tau at equal steps of its prior
tau = 5 * np.tan(np.pi / 2 * u)
log_joint = -0.5 * ((mu / 5) ** 2 + np.log(2 * np.pi * 25)) + np.zeros_like(tau)
for effect, error in zip(np.asarray(effects), np.asarray(errors), strict=True):
    variance = tau**2 + error**2
    log_joint += -0.5 * (
        (effect - mu) ** 2 / variance + np.log(2 * np.pi * variance)
    )
mass = np.exp(log_joint) * (mu[1, 0] - mu[0, 0]) / 4000
exact_log_z = np.log(mass.sum())
exact = {
    "mu": (mass * mu).sum() / mass.sum(),
    "log tau": (mass * np.log(tau)).sum() / mass.sum(),
}

found = {
    "mu": out.expect(lambda t: t["mu"]),
    "log tau": out.expect(lambda t: jnp.log(t["tau"])),
}
print(f"{'log Z':8} {out.log_z:8.3f}   exact {exact_log_z:.3f}")
for name in exact:
    print(f"{name:8} {found[name]:8.3f}   exact {exact[name]:.3f}")
assert abs(out.log_z - exact_log_z) < 0.15
assert abs(found["mu"] - exact["mu"]) < 0.4
assert abs(found["log tau"] - exact["log tau"]) < 0.15

# %% [markdown]
# ## The posterior
#
# Schools are pulled towards their mean, the noisy ones most.

# %%
weights = out.normalized_weights
means = np.asarray(out.expect(lambda t: t["theta"]))
sds = np.sqrt(np.asarray(out.expect(lambda t: (t["theta"] - means) ** 2)))

fig, (left, right) = plt.subplots(1, 2, width_ratios=[1, 1.6])
left.plot(schedule.beta, "o-", ms=3)
left.set(xlabel="level", title="the power of the likelihood")
at = np.arange(8)
right.errorbar(at - 0.12, effects, errors, fmt="o", alpha=0.6, label="reported")
right.errorbar(at + 0.12, means, sds, fmt="o", label="posterior")
right.axhline(exact["mu"], color="gray", linestyle="--", lw=1, label="mean, exact")
right.set(
    xticks=at, xticklabels="ABCDEFGH", title="effects, one standard deviation"
)
right.legend(fontsize=8)

# %% [markdown]
# ## What to do with it
#
# `out.resample(key, n)` has n particles of equal weight; its trace is a dictionary for `numpyro.infer.Predictive`, and
# `out.to_arviz(key, draws=1000)` is what ArviZ plots. `sy.predict` draws new data:

# %%
equal = out.resample(jax.random.key(2), 1000)
new = sy.predict(model, jax.random.key(3), effects, errors, posterior=equal)
beaten = (new["effect"].max(axis=1) >= effects.max()).mean()
print(
    f"P(the best of eight new results is at least {effects.max():.0f}) = {beaten:.2f}"
)

# %% [markdown]
# To send it to somebody, `sy.report(sampler, out, "schools.html")` writes [one page](../looking.md) with the program, its
# levels and the particles.
#
# A model of your own goes the same way: replace `schools` and the data. If two runs differ in log Z by more than you like,
# double `steps` first and the particles next. [What becomes of each kind of site](../numpyro.md) is a page of its own, and
# [which sampler for which problem](../choosing.md) tells when to do something else.
