# %% [markdown]
# # Write an objective, an algorithm, a combinator
#
# *How do I add what is not there yet, and how do I know that it is right?*
#
# Each of the three is a few lines, and each has a check that leaves no room for luck: gradients by exact integration, weights by enumeration.

# %%
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import optax

import steelyard as sy


def model(s):
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), 1.3)
    return z


def guide(mean):
    return lambda s: s.sample("z", dist.Normal(mean, 0.6))


# %% [markdown]
# ## An objective
#
# An objective is a function of one `Level`: what a `propose` compares. It returns one number, and its gradient trains. The chi-square
# divergence from target to proposal is E_q[w²] / Z² - 1, with w = p / q. Minimising it makes the variance of the weights small, which is
# what an importance sampler wants.


# %%
def chi_square(level):
    """log E_q[w^2] - 2 log Z: the logarithm of 1 + chi-square."""
    log_w = level.log_weight
    n = log_w.shape[0]
    second = jax.nn.logsumexp(2 * log_w) - jnp.log(n)
    return second - 2 * (jax.nn.logsumexp(log_w) - jnp.log(n))


def loss(mean, key):
    q = sy.propose(model, guide(mean), objective=chi_square)
    return sy.evaluate(q, key, particles=100_000).loss


# %% [markdown]
# For normal densities the divergence is an integral that a grid does to many digits. Compare the value, and the gradient.


# %%
def exact(mean):
    z, dz = jnp.linspace(-8.0, 8.0, 20_001, retstep=True)
    log_p = dist.Normal(0.0, 1.0).log_prob(z) + dist.Normal(z, 0.5).log_prob(1.3)
    log_q = dist.Normal(mean, 0.6).log_prob(z)
    log_z = jax.nn.logsumexp(log_p) + jnp.log(dz)
    return jax.nn.logsumexp(2 * log_p - log_q) + jnp.log(dz) - 2 * log_z


means = jnp.linspace(0.6, 1.5, 7)
keys = jax.random.split(jax.random.key(0), 7)
values, slopes = jax.jit(jax.vmap(jax.value_and_grad(loss)))(means, keys)
exact_values, exact_slopes = jax.vmap(jax.value_and_grad(exact))(means)
print("value   ", np.asarray(values).round(3))
print("exact   ", np.asarray(exact_values).round(3))
print("gradient", np.asarray(slopes).round(2))
print("exact   ", np.asarray(exact_slopes).round(2))
assert abs(values - exact_values).max() < 0.05
assert abs(slopes - exact_slopes).max() < 0.15

# %%
fig, ax = plt.subplots()
fine = jnp.linspace(0.5, 1.6, 100)
ax.plot(fine, jax.vmap(exact)(fine), label="exact")
ax.plot(means, values, "o", label="100,000 particles")
for mean, value, slope in zip(means, values, slopes, strict=True):
    at = np.array([mean - 0.06, mean + 0.06])
    ax.plot(at, value + slope * (at - mean), color="gray", lw=2)
ax.axvline(1.3 * 0.8, linestyle="--", lw=1, color="gray")
ax.set(xlabel="mean of the guide", title="log(1 + chi-square), with its gradients")
ax.legend(fontsize=8)

# %% [markdown]
# It trains like any other. The posterior mean is 0.8 × 1.3 = 1.04, and by symmetry so is the best guide.

# %%
result = sy.train(
    lambda mean: sy.propose(model, guide(mean)),
    0.3,
    optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 300)),
    steps=300,
    key=jax.random.key(1),
    particles=100,
    objective=chi_square,
    progress=False,
)
print(f"learned {result.models:.3f}, exact {0.8 * 1.3:.3f}")
assert abs(result.models - 0.8 * 1.3) < 0.03


# %% [markdown]
# ## An algorithm
#
# An algorithm is a function that composes programs. *Defensive* importance sampling draws from the guide or, sometimes, from the prior, so that
# a bad guide cannot ruin it. Which of the two a particle came from is an auxiliary variable: the target does not have it. `extend` adds it to
# the target, and the best choice is its probability given z. Then the weight is p / (mixture of both).


# %%
def defensive(model, prior, guide, share):
    def pick(s):
        from_prior = s.sample("from_prior", dist.Bernoulli(share)) == 1
        mean = jnp.where(from_prior, prior.loc, guide.loc)
        s.sample(
            "z", dist.Normal(mean, jnp.where(from_prior, prior.scale, guide.scale))
        )

    def where_from(s, z):
        odds = prior.log_prob(z) - guide.log_prob(z) + jnp.log(share / (1 - share))
        s.sample("from_prior", dist.Bernoulli(logits=odds))

    return sy.propose(sy.extend(model, where_from), pick)


prior, bad_guide = dist.Normal(0.0, 1.0), dist.Normal(2.5, 0.2)
runs = {
    "the bad guide": sy.propose(model, lambda s: s.sample("z", bad_guide)),
    "a fifth from the prior": defensive(model, prior, bad_guide, 0.2),
}
log_z = dist.Normal(0.0, 1.25**0.5).log_prob(1.3)
for name, q in runs.items():
    out = sy.evaluate(q, jax.random.key(2), particles=20_000)
    print(f"{name:24} log Z {out.log_z:6.3f}   ESS {out.ess:6.0f}")
print(f"{'exact':24} log Z {log_z:6.3f}")
assert abs(out.log_z - log_z) < 0.1


# %% [markdown]
# The same function with discrete densities could be proved right, as in the next section.
#
# ## A combinator
#
# A new way to treat particles is four small things: a class with its parts, a function that makes it, its rule, and the program
# that denotes the same density. *Russian roulette* gets rid of particles that hardly count: a weight below a limit is raised to the limit with
# probability weight / limit, and is zero otherwise. On average nothing changes. The limit is a share of the average weight, so that the
# largest weight always survives.

# %%
from steelyard.language.programs import Program, Programmable, program
from steelyard.language.rewrite import SAME_DENSITY
from steelyard.semantics.engine import Premise
from steelyard.semantics.judgement import INFERENCE_RULES


@dataclass(frozen=True)
class Roulette(Program):
    q: Program
    limit: float


def roulette(q: Programmable, limit: float = 0.5) -> Roulette:
    return Roulette(program(q), limit)


def rule(engine, q, c0):
    """c, tau, rho, w <- q(c0)    u = limit mean(w)    w' = w, or u with probability w / u, else 0"""
    e = yield Premise(q.q, c0)
    w = e.log_weight
    xp = w.__array_namespace__()  # NumPy or JAX, whichever engine runs it
    peak = w.max()
    u = xp.log(q.limit * xp.mean(xp.exp(w - peak))) + peak
    survives = engine.accepts(w - u)
    small = xp.where(survives, u, -xp.inf)
    return replace(e, log_weight=xp.where(w >= u, w, small))


INFERENCE_RULES[Roulette] = rule
SAME_DENSITY[Roulette] = lambda q: q.q

# %% [markdown]
# Nothing else needs to know of it: it can be shown, checked, scanned, resampled and proposed with. And it can be proved right. This goes through
# every outcome of two particles, the roulette included, in both engines:


# %%
def coin(s):
    z = s.sample("z", dist.Bernoulli(0.3))
    s.observe("x", dist.Bernoulli(0.1 + 0.8 * z), 1)


def guess(s):
    s.sample("z", dist.Bernoulli(0.4))


sy.testing.assert_properly_weighted(roulette(sy.propose(coin, guess)), particles=2)
sy.show(sy.resample(roulette(sy.propose(coin, guess))))

# %%
plain = sy.evaluate(runs["the bad guide"], jax.random.key(3), particles=2000)
rid = sy.evaluate(
    roulette(runs["the bad guide"]), jax.random.key(3), particles=2000
)
left = int((rid.log_weight > -jnp.inf).sum())
print(
    f"{left} of 2000 particles are left; log Z {plain.log_z:.3f} and {rid.log_z:.3f}"
)

# %% [markdown]
# [Contributing](../../CONTRIBUTING.md) says where each of these belongs if you would like to give it back.
