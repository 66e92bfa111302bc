"""A training step of amortized population Gibbs on a Gaussian mixture: 5 sweeps, 10 particles, batches of 20 data sets.

Three clusters in two dimensions, 60 points; means and precisions are one block, assignments the other (Wu et al. 2020).
"""

from functools import partial
from typing import Any

import coix
import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax

import steelyard as sy
from benchmarks.measure import Row, compare, gradient_step

SWEEPS, PARTICLES, BATCH, CLUSTERS, POINTS = 5, 10, 20, 3, 60
OPTIMIZER = optax.adam(2.5e-4)
PRIOR = {"mean": 0.0, "pseudo_points": 0.1, "shape": 2.0, "rate": 2.0}


class Dense(eqx.Module):
    """A layer for rows, as in the earlier library's example."""

    weight: Any
    bias: Any

    def __init__(self, inputs: int, outputs: int, key: Any) -> None:
        self.weight = jax.random.normal(key, (inputs, outputs)) / jnp.sqrt(inputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight + self.bias


class Statistics(eqx.Module):
    """Neural sufficient statistics of a block of points."""

    point: Dense
    weight: Dense

    def __init__(self, inputs: int, key: Any) -> None:
        k1, k2 = jax.random.split(key)
        self.point, self.weight = Dense(inputs, 2, k1), Dense(inputs, CLUSTERS, k2)


class Networks(eqx.Module):
    """The parameters of the initial proposal and of the two kernels."""

    initial: Statistics
    block: Statistics
    hidden: Dense
    assign: Dense

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 4)
        self.initial, self.block = Statistics(2, keys[0]), Statistics(2 + CLUSTERS, keys[1])
        self.hidden, self.assign = Dense(6, 32, keys[2]), Dense(32, 1, keys[3])


def _posterior(number: Any, first: Any, second: Any) -> tuple[Any, Any, Any, Any]:
    """Return the conjugate posterior of a cluster with so many points, and these sums of them and of their squares."""
    mean, pseudo = PRIOR["mean"], PRIOR["pseudo_points"]
    shape = PRIOR["shape"] + 0.5 * number
    between = number * pseudo / (number + pseudo) * (first / number - mean) ** 2
    rate = PRIOR["rate"] + 0.5 * (second - first**2 / number) + 0.5 * between
    return shape, rate, (mean * pseudo + first) / (pseudo + number), pseudo + number


def _block(net: Statistics, x: Any) -> tuple[Any, Any, Any, Any]:
    """Return the parameters of a proposal for means and precisions."""
    points, weights = net.point(x), jax.nn.softmax(net.weight(x))
    sums = weights.T @ jnp.concatenate([points, points**2], axis=-1)
    return _posterior(weights.sum(0)[:, None], *jnp.split(sums, 2, axis=-1))


def _logits(net: Networks, x: Any, mean: Any, precision: Any) -> Any:
    """Return the logits of each point's cluster."""
    of_points, of_clusters = net.hidden.weight[:2], net.hidden.weight[2:]
    clusters = jnp.concatenate([mean, precision], axis=-1) @ of_clusters + net.hidden.bias
    return net.assign(jnp.tanh((x @ of_points)[:, None] + clusters))[..., 0]


def _block_in_example(net: Statistics, x: Any) -> tuple[Any, Any, Any, Any]:
    """The same as in the example of the earlier library: every point with every cluster, and then sums."""
    points, weights = net.point(x)[:, None, :], jax.nn.softmax(net.weight(x))[:, :, None]
    return _posterior(weights.sum(0), (weights * points).sum(0), (weights * points**2).sum(0))


def _logits_in_example(net: Networks, x: Any, mean: Any, precision: Any) -> Any:
    """The same as in that example: one layer on points, means and precisions side by side."""
    pairs = (jnp.broadcast_to(a, (len(x), CLUSTERS, 2)) for a in (x[:, None], mean[None], precision[None]))
    return net.assign(jnp.tanh(net.hidden(jnp.concatenate([*pairs], axis=-1))))[..., 0]


def program(net: Networks, x: Any, unroll: int) -> Any:
    """The inference program of one data set, for steelyard."""

    def target(s: sy.State) -> Any:
        precision = s.sample("precision", dist.Gamma(2.0, 2.0).expand([CLUSTERS, 2]))
        mean = s.sample("mean", dist.Normal(0.0, 1 / jnp.sqrt(0.1 * precision)))
        c = s.sample("c", dist.Categorical(jnp.full((POINTS, CLUSTERS), 1 / CLUSTERS)))
        s.observe("x", dist.Normal(mean[c], 1 / jnp.sqrt(precision[c])), x)
        return mean, precision, c

    def block(s: sy.State, statistics: Any) -> tuple[Any, Any]:
        shape, rate, mean, number = statistics
        precision = s.sample("precision", dist.Gamma(shape, rate))
        return s.sample("mean", dist.Normal(mean, 1 / jnp.sqrt(precision * number))), precision

    def initial(s: sy.State) -> None:
        mean, precision = block(s, _block(net.initial, x))
        s.sample("c", dist.Categorical(logits=_logits(net, x, mean, precision)))

    def update_block(s: sy.State, value: Any) -> Any:
        c = value[2]
        with_c = jnp.concatenate([x, jax.nn.one_hot(c, CLUSTERS)], axis=-1)
        return *block(s, _block(net.block, with_c)), c

    def update_c(s: sy.State, value: Any) -> Any:
        mean, precision, _ = value
        return mean, precision, s.sample("c", dist.Categorical(logits=_logits(net, x, mean, precision)))

    return sy.algorithms.apg(target, initial, [update_block, update_c], SWEEPS, unroll=unroll)


def steelyard_loss(unroll: int) -> Any:
    def loss(net: Networks, key: Any, xs: Any) -> Any:
        losses = jax.vmap(lambda k, x: sy.evaluate(program(net, x, unroll), k, particles=PARTICLES).loss)
        return losses(jax.random.split(key, BATCH), xs).mean()

    return loss


def coix_loss(net: Networks, key: Any, xs: Any, *, example: bool) -> Any:
    """The same in the earlier library, for all particles of a data set at once; its sweeps are a loop."""
    block, logits = (_block_in_example, _logits_in_example) if example else (_block, _logits)

    def for_all_particles(f: Any) -> Any:
        return numpyro.plate("particles", PARTICLES, dim=-1)(f)

    def each(table: Any, c: Any) -> Any:
        return jax.vmap(lambda rows, index: rows[index])(table, c)

    def target(x: Any) -> Any:
        precision = numpyro.sample("precision", dist.Gamma(2.0, 2.0).expand([CLUSTERS, 2]).to_event(2))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1 / jnp.sqrt(0.1 * precision)).to_event(2))
        c = numpyro.sample("c", dist.Categorical(jnp.full((POINTS, CLUSTERS), 1 / CLUSTERS)).to_event(1))
        likelihood = dist.Normal(each(mean, c), 1 / jnp.sqrt(each(precision, c))).to_event(2)
        numpyro.sample("x", likelihood, obs=x)
        return ({"mean": mean, "precision": precision, "c": c, "x": x},)

    def update_block(inputs: Any) -> Any:
        inputs = inputs if isinstance(inputs, dict) else {"x": inputs}
        x = inputs["x"]
        if "c" in inputs:
            one_hot = jax.nn.one_hot(inputs["c"], CLUSTERS)
            statistics = jax.vmap(lambda c: block(net.block, jnp.concatenate([x, c], axis=-1)))(one_hot)
        else:
            statistics = block(net.initial, x)
        shape, rate, mean, number = statistics
        precision = numpyro.sample("precision", dist.Gamma(shape, rate).to_event(2))
        mean = numpyro.sample("mean", dist.Normal(mean, 1 / jnp.sqrt(precision * number)).to_event(2))
        return ({**inputs, "mean": mean, "precision": precision},)

    def update_c(inputs: Any) -> Any:
        each_logits = jax.vmap(logits, (None, None, 0, 0))(net, inputs["x"], inputs["mean"], inputs["precision"])
        return ({**inputs, "c": numpyro.sample("c", dist.Categorical(logits=each_logits).to_event(1))},)

    kernels = [for_all_particles(update_block), for_all_particles(update_c)]
    q = coix.algo.apgs(for_all_particles(target), kernels, num_sweeps=SWEEPS)
    losses = jax.vmap(lambda k, x: coix.traced_evaluate(q, seed=k)(x)[2]["loss"])
    return losses(jax.random.split(key, BATCH), xs).mean()


def simulate(key: Any) -> Any:
    """Return data sets from the prior."""

    def one(key: Any) -> Any:
        keys = jax.random.split(key, 4)
        precision = jax.random.gamma(keys[0], 2.0, (CLUSTERS, 2)) / 2.0
        mean = jax.random.normal(keys[1], (CLUSTERS, 2)) / jnp.sqrt(0.1 * precision)
        c = jax.random.randint(keys[2], (POINTS,), 0, CLUSTERS)
        return mean[c] + jax.random.normal(keys[3], (POINTS, 2)) / jnp.sqrt(precision[c])

    return jax.vmap(one)(jax.random.split(key, BATCH))


def run() -> list[Row]:
    """Compare a training step with coix."""
    parameters, static = eqx.partition(Networks(jax.random.key(0)), eqx.is_inexact_array)
    args = (parameters, OPTIMIZER.init(parameters), jax.random.key(1), simulate(jax.random.key(2)))
    contenders = {
        "steelyard, unrolled": gradient_step(steelyard_loss(SWEEPS), static, OPTIMIZER),
        "steelyard, rolled": gradient_step(steelyard_loss(1), static, OPTIMIZER),
        "coix, the same networks": gradient_step(partial(coix_loss, example=False), static, OPTIMIZER),
        "coix's example": gradient_step(partial(coix_loss, example=True), static, OPTIMIZER),
    }
    task = f"amortized Gibbs, Gaussian mixture, {SWEEPS} sweeps"
    return [compare(task, contenders, args, "coix's example", compilations=2)]
