# %% [markdown]
# # Coming from another library
#
# *How do I say here what I say in NumPyro, Pyro, coix, probtorch, BlackJAX, particles or Gen?*
#
# First one model in three ways, next to its exact posterior. Then a table for each library, with what to keep using it for.

# %%
from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.stats
from numpyro.infer import MCMC, NUTS

import steelyard as sy

counts = jnp.array([3, 7, 4, 6, 5])


def in_numpyro(counts):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    with numpyro.plate("days", counts.size):
        numpyro.sample("counts", dist.Poisson(rate), obs=counts)


def in_steelyard(s, counts):
    rate = s.sample("rate", dist.Gamma(2.0, 0.5))
    s.observe("counts", dist.Poisson(rate), counts)


# %% [markdown]
# The prior is conjugate, so that the posterior is a Gamma distribution, and the evidence has a formula.

# %%
total, days = int(counts.sum()), counts.size
posterior = scipy.stats.gamma(2.0 + total, scale=1 / (0.5 + days))
log_z = (
    scipy.special.gammaln(2.0 + total)
    - scipy.special.gammaln(2.0)
    + 2.0 * np.log(0.5)
    - (2.0 + total) * np.log(0.5 + days)
    - scipy.special.gammaln(np.asarray(counts) + 1.0).sum()
)

# %% [markdown]
# **NumPyro's model, here**, and **our program, in NumPyro**: each library runs what was written for the other.

# %%
out = sy.evaluate(
    sy.from_numpyro(in_numpyro), jax.random.key(0), counts, particles=20_000
)
nuts = MCMC(
    NUTS(sy.to_numpyro(in_steelyard)),
    num_warmup=300,
    num_samples=2000,
    progress_bar=False,
)
nuts.run(jax.random.key(1), counts)
draws = nuts.get_samples()["rate"]

# %% [markdown]
# **A kernel of BlackJAX**, with all that `adaptive` can find left open:

# %%
hmc = partial(blackjax.hmc, num_integration_steps=5)
moved = sy.evaluate(
    sy.algorithms.tempered(in_steelyard, hmc, sy.adaptive(), steps=3),
    jax.random.key(2),
    counts,
    particles=2000,
)

print(f"exact               log Z {log_z:.3f}   mean {posterior.mean():.3f}")
for name, result in [("importance sampling", out), ("tempered, HMC", moved)]:
    mean = result.expect(lambda t: t["rate"])
    print(f"{name:19} log Z {result.log_z:.3f}   mean {mean:.3f}")
    assert abs(result.log_z - log_z) < 0.1 and abs(mean - posterior.mean()) < 0.1
print(f"{'NUTS':19} no log Z        mean {draws.mean():.3f}")
assert abs(draws.mean() - posterior.mean()) < 0.15

# %%
fig, ax = plt.subplots()
grid = np.linspace(1.5, 9, 200)
bins = np.linspace(1.5, 9, 40)
ax.hist(
    out.trace["rate"],
    bins,
    weights=out.normalized_weights,
    density=True,
    alpha=0.5,
    label="importance sampling",
)
for values, weights, name in [
    (moved.trace["rate"], moved.normalized_weights, "tempered, HMC"),
    (draws, None, "NUTS, by NumPyro"),
]:
    ax.hist(
        values,
        bins,
        weights=weights,
        density=True,
        histtype="step",
        lw=1.5,
        label=name,
    )
ax.plot(grid, posterior.pdf(grid), "--", color="gray", label="exact")
ax.set(xlabel="rate", title="one posterior, by three ways and exactly", yticks=[])
ax.legend(fontsize=8)

# %% [markdown]
# ## NumPyro
#
# | NumPyro | steelyard |
# |---|---|
# | `def model(x)` with `numpyro.sample("z", d)` | `def model(s, x)` with `s.sample("z", d)`, or `sy.from_numpyro(model)` |
# | `numpyro.sample("x", d, obs=x)` | `s.observe("x", d, x)` |
# | `numpyro.factor("f", v)` | `s.factor("f", v)` |
# | `plate` | nothing: a program is one particle, and `log_prob` is summed |
# | `numpyro.param("w", w0)` | an argument, or a leaf of `models` in `sy.train`; `sy.numpyro_params` collects them |
# | `SVI(model, guide, optim, Trace_ELBO(10))` | `sy.train(lambda w: sy.algorithms.svi(model, guide(w)), w, particles=10, ...)` |
# | `RenyiELBO(alpha=0, num_particles=10)` | `sy.algorithms.iwae(model, guide)` |
# | `MCMC(NUTS(model))` | `sy.algorithms.tempered(model, hmc, sy.adaptive())`, or `MCMC(NUTS(sy.to_numpyro(model)))` |
# | `Predictive(model, samples)` | `sy.predict(model, key, *args, posterior=out)` |
# | `handlers.condition(model, data)` | `s.observe`, or `sy.evaluate(..., given=trace)` |
# | `infer.util.log_density(model, args, {}, z)` | `sy.log_density(model, z, *args)` |
#
# Keep NumPyro for NUTS on one posterior, for automatic reparameterisation, and for enumerated discrete variables.
#
# ## Pyro
#
# | Pyro | steelyard |
# |---|---|
# | `pyro.sample`, `pyro.param`, `pyro.plate` | as for NumPyro; models have to be written again |
# | `Importance(model, guide, num_samples=1000)` | `sy.evaluate(sy.propose(model, guide), key, *args, particles=1000)` |
# | `ReweightedWakeSleep(num_particles=10)` | `sy.algorithms.rws(model, guide)` |
# | `SMCFilter(model, guide, num_particles=1000, max_plate_nesting=0)` | `sy.algorithms.smc(step, proposal, over=ys, initial=first)` |
# | `TraceGraph_ELBO` for discrete variables | any objective: score-function terms enter by themselves |
#
# Keep Pyro for PyTorch, and for enumeration in variational inference (`TraceEnum_ELBO`).
#
# ## coix
#
# | coix | steelyard |
# |---|---|
# | `coix.propose(p, q)`, `coix.extend(p, f)`, `coix.compose(q2, q1)`, `coix.resample(q)` | the same names |
# | programs take a key and return a value | programs take a state `s`; keys are given by the engine |
# | `handlers.plate("N", 100)`, `vmap` around programs | `sy.evaluate(..., particles=100)` |
# | `coix.traced_evaluate(q)(key)`, `metrics["log_weight"]` | `sy.evaluate(q, key, particles=...)`, `out.log_weight` |
# | a variable sampled again, with a suffix | `sy.move(kernel, q)`; `sy.previous("z")` is the older one |
# | `coix.fori_loop` | `sy.scan(step, q, xs)` |
# | `coix.algo.nvi_rkl`, `apgs`, `vsmc`, `dais` and others | `sy.algorithms.nvi`, `apg`, `vsmc`; `nvi(objective=)` for other divergences |
# | `coix.util.train` | `sy.train` |
#
# Keep coix for Oryx programs.
#
# ## probtorch/combinators
#
# | probtorch | steelyard |
# |---|---|
# | `Primitive(f)`, a `Program` with `model(trace, ...)` | the function itself |
# | `Propose(p=Extend(p, f), q=Compose(q1=q, q2=f))` | `sy.propose(sy.extend(p, f), sy.compose(f, q))`: the program that runs last comes first |
# | `Resample(q)` | `sy.resample(q, method="systematic", threshold=None)` |
# | `sample_shape=(1000, 1)` | `particles=1000` |
# | `out.log_weight`, `out.trace` | the same |
# | a `loss_fn` that is passed along | `objective=`, a function of a `Level` |
#
# It is the paper's own code, and the place to look for the paper's details.
#
# ## BlackJAX
#
# | BlackJAX | steelyard |
# |---|---|
# | `blackjax.hmc(log_density, ...)` and other kernels | `sy.mcmc(partial(blackjax.hmc, ...), q)`: the log density follows from q |
# | bijections to unconstrained space | done, with their Jacobians |
# | `blackjax.tempered_smc` | `sy.algorithms.tempered(model, kernel, betas)` |
# | `blackjax.adaptive_tempered_smc(..., target_ess=0.9)` | `sy.algorithms.tempered(model, kernel, sy.adaptive(ess=0.9))` |
# | `inner_kernel_tuning` | parameters of the kernel that are left open |
# | `state, info = step(key, state)` | `out = sy.evaluate(...)`, and `out.levels` |
#
# Keep BlackJAX for long chains, for its adaptation and its many kernels, and for waste-free and persistent SMC.
#
# ## particles
#
# | particles | steelyard |
# |---|---|
# | a class with `PX0`, `PX` and `PY` | three programs: the first state, the transition, a step that observes |
# | `SMC(fk=ssm.Bootstrap(ssm=model, data=ys), N=1000)` | `sy.algorithms.smc(step, over=ys, initial=first)` with `particles=1000` |
# | `ssm.GuidedPF`, `proposal` | `sy.algorithms.smc(step, proposal, over=ys, initial=first)` |
# | `ESSrmin=0.5`, `resampling="systematic"` | `threshold=0.5`, `method="systematic"` |
# | `alg.logLt`, `collect=[Moments()]` | `out.log_z`, `keep=["x"]` and `out.filtered(h)` |
# | `store_history=True`, `hist.backward_sampling_ON2(100)` | `sy.evaluate(..., smoothing=True)`, `out.smoothed(key, 100)` |
# | `AdaptiveTempering` | `sy.algorithms.tempered(model, kernel, sy.adaptive())` |
#
# Keep particles for quasi-Monte Carlo, on-line smoothing, PMMH and SMC², and with its book.
#
# ## Gen and GenJAX
#
# | Gen | steelyard |
# |---|---|
# | `@gen function model(x)`, `{:z} ~ normal(0, 1)` | `def model(s, x)`, `s.sample("z", dist.Normal(0.0, 1.0))` |
# | `choicemap((:x, 1.0))` | `s.observe("x", d, 1.0)`, or `given={"x": ...}` |
# | `importance_sampling(model, args, observations, 1000)` | `sy.evaluate(model, key, *args, particles=1000)` |
# | `initialize_particle_filter`, `particle_filter_step!`, `maybe_resample!` | `sy.scan` of `sy.move` and `sy.resample(q, threshold=0.5)` |
# | `mh(trace, proposal, args)` | `sy.metropolis(proposal, q)` |
# | `assess(model, args, choices)` | `sy.log_density(model, trace, *args)` |
# | a program that branches on what it sampled | `engine="universal"`, or `with s.when(flag):` to stay vectorized |
#
# Keep Gen for programs whose structure is found at run time in large numbers, and for its involutive kernels in Julia.
