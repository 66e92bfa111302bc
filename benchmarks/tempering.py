"""Adaptive tempered sequential Monte Carlo with Hamiltonian moves, next to BlackJAX's; and sweeps of Metropolis steps.

Logistic regression with 61 weights on 208 points, the size of the sonar data. Both resample at every level, choose each
power at the same effective sample size, and take the same steps of the same kernel.
"""

from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from blackjax.smc import extend_params
from blackjax.smc.resampling import systematic

import steelyard as sy
from benchmarks.chain import chain
from benchmarks.measure import Row, compare

PARTICLES, POINTS, WEIGHTS = 1000, 208, 61
STEPS, LEAPFROGS, STEP_SIZE, ESS, MOST = 5, 10, 0.1, 0.9, 200
SITES, MANY_SITES = 10, 100

PRIOR = dist.Normal(0.0, 2.0).expand([WEIGHTS]).to_event(1)


def data() -> tuple[Any, Any]:
    """Simulate inputs and labels."""
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    x = jnp.concatenate([jnp.ones((POINTS, 1)), jax.random.normal(k1, (POINTS, WEIGHTS - 1))], axis=1)
    return x, jax.random.bernoulli(k2, jax.nn.sigmoid(x @ jax.random.normal(k3, (WEIGHTS,)))).astype(float)


def model(s: sy.State, x: Any, y: Any) -> None:
    """Logistic regression."""
    w = s.sample("w", PRIOR)
    s.observe("y", dist.Bernoulli(logits=x @ w), y)


def ours(key: Any, x: Any, y: Any) -> Any:
    """Evaluate the algorithm of the library."""
    kernel = partial(
        blackjax.hmc, step_size=STEP_SIZE, inverse_mass_matrix=jnp.ones(WEIGHTS), num_integration_steps=LEAPFROGS
    )
    q = sy.algorithms.tempered(model, kernel, sy.adaptive(ess=ESS, most=MOST), steps=STEPS, threshold=None)
    out = sy.evaluate(q, key, x, y, particles=PARTICLES)
    return out.log_z, out.found.count, out.trace["w"]


def theirs(key: Any, x: Any, y: Any) -> Any:
    """Run BlackJAX's loop, as its documentation writes it."""
    k0, key = jax.random.split(key)
    parameters = {
        "step_size": STEP_SIZE,
        "inverse_mass_matrix": jnp.ones(WEIGHTS),
        "num_integration_steps": LEAPFROGS,
    }
    smc = blackjax.adaptive_tempered_smc(
        PRIOR.log_prob,
        lambda w: dist.Bernoulli(logits=x @ w).log_prob(y).sum(),
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        extend_params(parameters),
        systematic,
        target_ess=ESS,
        num_mcmc_steps=STEPS,
    )

    def step(carry: Any) -> Any:
        state, key, log_z, count = carry
        key, own = jax.random.split(key)
        state, info = smc.step(own, state)
        return state, key, log_z + info.log_likelihood_increment, count + 1

    state = smc.init(PRIOR.sample(k0, (PARTICLES,)))
    start = state, key, jnp.zeros(()), 0
    state, _, log_z, count = jax.lax.while_loop(lambda c: (c[0].tempering_param < 1) & (c[3] < MOST), step, start)
    return log_z, count, state.particles


def by_hand(key: Any, x: Any, y: Any) -> Any:
    """The same algorithm without any library: leapfrog steps on gradients of all particles."""
    identity = jnp.arange(PARTICLES)

    def likelihood(w: Any) -> Any:
        return dist.Bernoulli(logits=x @ w).log_prob(y).sum()

    def ess(step: Any, values: Any) -> Any:
        v = jnp.exp(step * (values - values.max()))
        return v.sum() ** 2 / (v**2).sum() / PARTICLES

    def chosen(beta: Any, values: Any) -> Any:
        def halved(_: Any, interval: Any) -> Any:
            low, high = interval
            enough = ess((low + high) / 2, values) >= ESS
            return jnp.where(enough, (low + high) / 2, low), jnp.where(enough, high, (low + high) / 2)

        low, _ = jax.lax.fori_loop(0, 64, halved, (0.0 * beta, 1 - beta))
        return jnp.where(ess(1 - beta, values) >= ESS, 1.0, beta + low)

    def walk(key: Any, w: Any, beta: Any) -> Any:
        density = jax.vmap(jax.value_and_grad(lambda w: PRIOR.log_prob(w) + beta * likelihood(w)))

        def leapfrog(_: Any, state: Any) -> Any:
            w, momentum, _, slope = state
            momentum = momentum + 0.5 * STEP_SIZE * slope
            w = w + STEP_SIZE * momentum
            value, slope = density(w)
            return w, momentum + 0.5 * STEP_SIZE * slope, value, slope

        def step(state: Any, key: Any) -> Any:
            w, value, slope = state
            k1, k2 = jax.random.split(key)
            momentum = jax.random.normal(k1, w.shape)
            new, turned, new_value, new_slope = jax.lax.fori_loop(0, LEAPFROGS, leapfrog, (w, momentum, value, slope))
            log_alpha = new_value - value + 0.5 * (momentum**2 - turned**2).sum(axis=1)
            accepted = jnp.log(jax.random.uniform(k2, (PARTICLES,))) < log_alpha
            wide = accepted[:, None]
            return (
                jnp.where(wide, new, w),
                jnp.where(accepted, new_value, value),
                jnp.where(wide, new_slope, slope),
            ), None

        (w, *_), _ = jax.lax.scan(step, (w, *density(w)), jax.random.split(key, STEPS))
        return w

    def level(carry: Any) -> Any:
        w, beta, key, log_z, count = carry
        key, k1, k2 = jax.random.split(key, 3)
        values = jax.vmap(likelihood)(w)
        new = chosen(beta, values)
        log_w = (new - beta) * values
        cdf = jnp.cumsum(jax.nn.softmax(log_w))
        ancestors = jnp.searchsorted(cdf / cdf[-1], (identity + jax.random.uniform(k1)) / PARTICLES)
        log_z = log_z + jax.nn.logsumexp(log_w) - jnp.log(PARTICLES)
        return walk(k2, w[ancestors], new), new, key, log_z, count + 1

    k0, key = jax.random.split(key)
    start = PRIOR.sample(k0, (PARTICLES,)), jnp.zeros(()), key, jnp.zeros(()), 0
    w, _, _, log_z, count = jax.lax.while_loop(lambda c: (c[1] < 1) & (c[4] < MOST), level, start)
    return log_z, count, w


def sweep(length: int) -> Any:
    """Return a sweep of Metropolis steps over the states of a chain, one after the other."""
    ys = jax.random.normal(jax.random.key(2), (length,))

    def update(t: int) -> Any:
        def kernel(s: sy.State, value: Any) -> None:
            s.sample(f"z{t}", dist.Normal(value[0][t], 0.5))

        return kernel

    def run(key: Any) -> Any:
        f = chain(length)
        q: Any = sy.propose(f, f)
        for t in range(length):
            q = sy.metropolis(update(t), q)
        return sy.evaluate(q, key, ys, particles=100).trace

    return run


def run() -> list[Row]:
    """Compare both, and lengths of a chain."""
    contenders = {"steelyard": ours, "BlackJAX": theirs, "by hand": by_hand}
    arguments = jax.random.key(1), *data()
    lengths = {f"T={t}": sweep(t) for t in (MANY_SITES, SITES)}
    return [
        compare("adaptive tempered SMC, 1,000 particles", contenders, arguments, "BlackJAX", compilations=2),
        compare("Metropolis sweep over a chain", lengths, (jax.random.key(0),), f"T={SITES}", compilations=1),
    ]
