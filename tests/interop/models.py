"""NumPyro models that together use what the models of NumPyro's example gallery use. Each is a case of the tests."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from flax import nnx
from jax.example_libraries import stax
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.contrib.module import eqx_module, flax_module, nnx_module, random_eqx_module, random_flax_module
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

random = np.random.default_rng(0)
X = random.normal(size=(7, 3)).astype(np.float32)
Y = random.normal(size=7).astype(np.float32)
COUNTS = np.array([0, 3, 0, 1, 5, 0, 2])


class Case(NamedTuple):
    """A model with its arguments; `learned` tells whether it has parameters."""

    model: Callable[..., Any]
    args: tuple[Any, ...] = ()
    learned: bool = False


def regression(x: Any, y: Any) -> Any:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0), sample_shape=(3,))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mean = numpyro.deterministic("mean", x @ w)
    numpyro.sample("y", dist.Normal(mean, sigma), obs=y)
    return mean


def logistic(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.MultivariateNormal(jnp.zeros(3), 2.0 * jnp.eye(3)))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32)
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32)


def eight_schools(y: Any, sigma: Any) -> Any:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("J", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)
    return theta


non_centred = handlers.reparam(eight_schools, config={"theta": LocScaleReparam(0)})
half_centred = handlers.reparam(eight_schools, config={"theta": LocScaleReparam()})


def transformed(y: Any) -> None:
    scaled = dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(1.0, 3.0))
    with handlers.reparam(config={"level": TransformReparam()}):
        level = numpyro.sample("level", scaled)
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.StudentT(4.0, level, 1.0), obs=y)


def nested_plates(y: Any) -> None:
    regions, shops = numpyro.plate("regions", 3, dim=-2), numpyro.plate("shops", 5, dim=-1)
    mu = numpyro.sample("mu", dist.Cauchy(0.0, 1.0))
    with regions:
        region = numpyro.sample("region", dist.Normal(mu, 1.0))
    with shops:
        shop = numpyro.sample("shop", dist.Gumbel(0.0, 1.0))
    with regions, shops:
        rate = numpyro.sample("rate", dist.LogNormal(0.3 * region, 0.2))
        numpyro.sample("y", dist.Gamma(2.0, rate * jnp.exp(0.1 * shop)), obs=y)


def horseshoe(x: Any, y: Any) -> None:
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    with numpyro.plate("D", 3):
        shrinkage = numpyro.sample("shrinkage", dist.HalfCauchy(1.0))
        w = numpyro.sample("w", dist.Normal(0.0, tau * shrinkage))
    precision = numpyro.sample("precision", dist.Gamma(3.0, 1.0))
    numpyro.sample("y", dist.Normal(x @ w, 1 / jnp.sqrt(precision)), obs=y)


def hidden_markov(y: Any) -> None:
    with numpyro.plate("states", 3):
        moves = numpyro.sample("moves", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    means = numpyro.sample("means", dist.Normal(jnp.arange(3.0), 1.0).to_event(1))

    def step(state: Any, y: Any) -> Any:
        state = numpyro.sample("state", dist.Categorical(moves[state]), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(means[state], 0.5), obs=y)
        return state, state

    scan(step, 0, y)


def gaussian_process(x: Any, y: Any) -> None:
    length = numpyro.sample("length", dist.LogNormal(0.0, 0.5))
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    square = (x[:, None] - x[None, :]) ** 2
    kernel = jnp.exp(-0.5 * square / length**2) + (noise**2 + 1e-2) * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance_matrix=kernel), obs=y)


def mixture(y: Any) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([2.0, 1.0])))
    with numpyro.plate("components", 2):
        means = numpyro.sample("means", dist.Normal(0.0, 2.0))
    with numpyro.plate("N", len(y)):
        k = numpyro.sample("k", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(means[k], 0.7), obs=y)


def marginal_mixture(y: Any) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([2.0, 1.0])))
    means = numpyro.sample("means", dist.Normal(jnp.array([-1.0, 1.0]), 2.0).to_event(1))
    parts = dist.Normal(means, 0.7)
    numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts).expand([len(y)]), obs=y)


def topics(words: Any) -> None:
    with numpyro.plate("topics", 2):
        frequencies = numpyro.sample("frequencies", dist.Dirichlet(jnp.ones(5) / 2))
    with numpyro.plate("documents", 3, dim=-1):
        share = numpyro.sample("share", dist.Dirichlet(jnp.array([1.0, 2.0])))
        with numpyro.plate("words", 4, dim=-2):
            topic = numpyro.sample("topic", dist.Categorical(share))
            numpyro.sample("word", dist.Categorical(frequencies[topic]), obs=words)


def capture_recapture(seen: Any) -> None:
    survives = numpyro.sample("survives", dist.Uniform(0.0, 1.0))
    caught = numpyro.sample("caught", dist.Beta(2.0, 2.0))

    def step(state: Any, now: Any) -> Any:
        first, alive = state
        with numpyro.plate("animals", 4):
            with handlers.mask(mask=first):
                alive = numpyro.sample("alive", dist.Bernoulli(jnp.where(first, alive * survives, 1.0)))
                numpyro.sample("seen", dist.Bernoulli(caught * alive), obs=now)
        return (first | (now == 1), alive), None

    scan(step, (jnp.zeros(4, bool), jnp.ones(4, int)), seen)


def predators(y: Any) -> None:
    start = numpyro.sample("start", dist.LogNormal(jnp.log(10.0), 0.5), sample_shape=(2,))
    theta = numpyro.sample(
        "theta", dist.TruncatedNormal(jnp.array([0.5, 0.05, 0.8, 0.05]), jnp.array([0.2, 0.01, 0.2, 0.01]), low=0.0)
    )
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 0.5), sample_shape=(2,))

    def slope(z: Any) -> Any:
        return jnp.stack([(theta[0] - theta[1] * z[1]) * z[0], (-theta[2] + theta[3] * z[0]) * z[1]])

    def step(z: Any, _: Any) -> Any:
        k1 = slope(z)
        k2 = slope(z + 0.05 * k1)
        z = jnp.clip(z + 0.1 * k2, 1e-3, 1e3)
        return z, z

    _, path = jax.lax.scan(step, start, None, length=len(y))
    numpyro.sample("y", dist.LogNormal(jnp.log(path), sigma), obs=y)


def stochastic_volatility(returns: Any) -> None:
    step_size = numpyro.sample("step_size", dist.Exponential(10.0))
    s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step_size, num_steps=len(returns)))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    numpyro.sample("r", dist.StudentT(df=nu + 1.0, loc=0.0, scale=jnp.exp(s)), obs=returns)


def zero_inflated(x: Any, y: Any) -> None:
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    gate = numpyro.sample("gate", dist.Beta(1.0, 2.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(0.3 * x @ b)), obs=y)


def ordinal(x: Any, y: Any) -> None:
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    cuts = dist.TransformedDistribution(
        dist.Normal(jnp.array([-1.0, 0.0, 0.2]), 0.5).to_event(1), dist.transforms.OrderedTransform()
    )
    points = numpyro.sample("points", cuts)
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.OrderedLogistic(b * x[:, 0], points), obs=y)


def correlated(y: Any) -> None:
    scales = numpyro.sample("scales", dist.InverseGamma(3.0, 1.0).expand([2]).to_event(1))
    cholesky = numpyro.sample("cholesky", dist.LKJCholesky(2, 1.5))
    with numpyro.plate("N", 3):
        tril = scales[:, None] * cholesky
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2), scale_tril=tril), obs=y)


def autoregressive(y: Any) -> Any:
    a = numpyro.sample("a", dist.Uniform(-1.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))

    def step(before: Any, now: Any) -> Any:
        x = numpyro.sample("x", dist.Normal(a * before, sigma))
        numpyro.sample("y", dist.Laplace(x, 0.5), obs=now)
        return x, x

    return scan(step, jnp.zeros(()), y)[1]


def panel(y: Any) -> None:
    def step(level: Any, now: Any) -> Any:
        with numpyro.plate("units", 2):
            level = numpyro.sample("level", dist.Gamma(2.0 + level, 1.0))
            numpyro.sample("y", dist.Poisson(level), obs=now)
        return level, None

    scan(step, jnp.ones(2), y)


def censored(y: Any) -> None:
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    known = y < 1.0
    with numpyro.plate("N", len(y)):
        with handlers.mask(mask=known):
            numpyro.sample("y", dist.Exponential(rate), obs=y)
        with handlers.mask(mask=~known):
            numpyro.factor("later", -rate * y)


def missing(y: Any, is_there: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("N", len(y)):
        z = numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=is_there)
    numpyro.sample("total", dist.Normal(jnp.sum(z), 1.0), obs=2.0)


def subsampled(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("N", len(y), subsample_size=3) as rows:
        local = numpyro.sample("local", dist.Normal(mean, 1.0))
        numpyro.sample("y", dist.Normal(local, 0.5), obs=y[rows])
        also = numpyro.subsample(y, event_dim=0)
        numpyro.sample("also", dist.Normal(local, 0.5), obs=also)


def scaled(y: Any) -> None:
    with handlers.scale(scale=0.5):
        mean = numpyro.sample("mean", dist.Gamma(2.0, 1.0))
    with numpyro.plate("N", len(y)), handlers.scale(scale=jnp.linspace(1.0, 2.0, len(y))):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        numpyro.factor("bonus", 0.1 * mean * y)


def chosen(y: Any) -> None:
    side = numpyro.sample("side", dist.Normal(0.0, 1.0))
    near = cond(
        side > 0,
        lambda x: numpyro.sample("near", dist.Normal(x, 1.0)),
        lambda x: numpyro.sample("near", dist.Normal(-3.0 * x, 0.2)),
        side,
    )
    numpyro.sample("y", dist.Normal(near, 1.0), obs=y)


def substituted(y: Any) -> None:
    numpyro.sample("level", dist.Normal(0.0, 1.0))
    shift = numpyro.sample("shift", dist.Normal(0.0, 2.0))
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    bias = numpyro.param("bias", 0.3)
    numpyro.sample("y", dist.Normal(shift + bias, scale), obs=y)


fixed = handlers.lift(
    handlers.condition(handlers.substitute(substituted, data={"shift": 0.4}), data={"scale": 1.3}),
    prior={"bias": dist.Laplace(0.0, 2.0)},
)


def parameters(y: Any) -> None:
    a = numpyro.param("a", jnp.array([0.4, 2.0]), constraint=dist.constraints.positive)
    shares = numpyro.param("shares", jnp.array([0.2, 0.3, 0.5]), constraint=dist.constraints.simplex)
    start = numpyro.param("start", lambda key: jax.random.normal(key, ()))
    z = numpyro.sample("z", dist.Beta(a[0], a[1]))
    numpyro.sample("k", dist.Categorical(shares))
    numpyro.sample("y", dist.Normal(start + z, 1.0), obs=y)


def network(x: Any, y: Any) -> None:
    layers = stax.serial(stax.Dense(4), stax.Tanh, stax.Dense(1))
    net = numpyro.module("net", layers, input_shape=(3,))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(net(x)[:, 0], sigma), obs=y)


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(1)(nn.tanh(nn.Dense(4)(x)))[..., 0]


def linen_network(x: Any, y: Any) -> None:
    net = flax_module("net", Mlp(), input_shape=(3,))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(net(x), sigma), obs=y)


def bayesian_network(x: Any, y: Any) -> None:
    priors = {"Dense_0.kernel": dist.Normal(0.0, 1.0), "Dense_1.bias": dist.Cauchy(0.0, 0.3)}
    net = random_flax_module("net", Mlp(), prior=priors, input_shape=(3,))
    numpyro.sample("y", dist.Normal(net(x), 0.5), obs=y)


NNX_LINEAR = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
EQX_LINEAR = eqx.nn.Linear(3, 1, key=jax.random.key(0))


def nnx_network(x: Any, y: Any) -> None:
    net = nnx_module("net", NNX_LINEAR)
    numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(net(x)[:, 0], 0.5), obs=y)


def eqx_network(x: Any, y: Any) -> None:
    fixed, random = eqx_module("fixed", EQX_LINEAR), random_eqx_module("net", EQX_LINEAR, prior=dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jax.vmap(fixed)(x)[:, 0] + jax.vmap(random)(x)[:, 0], 0.5), obs=y)


def autoencoder(images: Any) -> None:
    decode = numpyro.module("decoder", stax.serial(stax.Dense(6), stax.Softplus, stax.Dense(4)), (2,))
    with numpyro.plate("batch", 3):
        z = numpyro.sample("z", dist.Normal(jnp.zeros(2), jnp.ones(2)).to_event(1))
        numpyro.sample("image", dist.Bernoulli(logits=decode(z)).to_event(1), obs=images)


def scoped(y: Any) -> None:
    with handlers.scope(prefix="outer"):
        mean = numpyro.sample("mean", dist.VonMises(0.0, 2.0))
    numpyro.sample("y", dist.Normal(mean, jnp.ones((7, 1))), obs=y[:, None] * jnp.ones((1, 2)))


CASES = {
    "regression": Case(regression, (X, Y)),
    "logistic": Case(logistic, (X, (Y > 0) * 1)),
    "eight_schools": Case(eight_schools, (EFFECTS, ERRORS)),
    "non_centred": Case(non_centred, (EFFECTS, ERRORS)),
    "half_centred": Case(half_centred, (EFFECTS, ERRORS), learned=True),
    "transformed": Case(transformed, (Y,)),
    "nested_plates": Case(nested_plates, (np.abs(random.normal(size=(3, 5))).astype(np.float32),)),
    "horseshoe": Case(horseshoe, (X, Y)),
    "hidden_markov": Case(hidden_markov, (Y,)),
    "gaussian_process": Case(gaussian_process, (X[:, 0], Y)),
    "mixture": Case(mixture, (Y,)),
    "marginal_mixture": Case(marginal_mixture, (Y,)),
    "topics": Case(topics, (np.arange(12).reshape(4, 3) % 5,)),
    "capture_recapture": Case(capture_recapture, (np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 1]]),)),
    "predators": Case(predators, (np.exp(random.normal(size=(5, 2))).astype(np.float32) * 10,)),
    "stochastic_volatility": Case(stochastic_volatility, (Y,)),
    "zero_inflated": Case(zero_inflated, (X, COUNTS)),
    "ordinal": Case(ordinal, (X, COUNTS % 4)),
    "correlated": Case(correlated, (X[:3, :2],)),
    "autoregressive": Case(autoregressive, (Y,)),
    "panel": Case(panel, (np.array([[1, 0], [3, 2], [2, 2]]),)),
    "censored": Case(censored, (np.abs(Y),)),
    "missing": Case(missing, (Y, Y > 0)),
    "subsampled": Case(subsampled, (jnp.asarray(Y),)),
    "scaled": Case(scaled, (Y,)),
    "chosen": Case(chosen, (0.7,)),
    "fixed": Case(fixed, (Y,)),
    "parameters": Case(parameters, (0.3,), learned=True),
    "network": Case(network, (X, Y), learned=True),
    "linen_network": Case(linen_network, (X, Y), learned=True),
    "bayesian_network": Case(bayesian_network, (X, Y), learned=True),
    "nnx_network": Case(nnx_network, (X, Y), learned=True),
    "eqx_network": Case(eqx_network, (X, Y), learned=True),
    "autoencoder": Case(autoencoder, ((random.random((3, 4)) > 0.5) * 1,), learned=True),
    "scoped": Case(partial(scoped), (Y,)),
}
