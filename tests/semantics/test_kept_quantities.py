"""What a target returns is computed again only where one of its variables moved, and nothing else changes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

X = jnp.array([0.3, -0.7, 1.1])


def programs(theta: Any) -> tuple[Any, ...]:
    def model(s: sy.State) -> Any:
        a = s.sample("a", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        b = s.sample("b", dist.Normal(0.0, 1.0))
        costly = jnp.tanh(theta * a @ jnp.outer(X, X))  # of a alone
        both = jnp.sin(theta * costly) * b  # of a and b
        s.observe("x", dist.Normal(costly + both, 0.5).to_event(1), X)
        s.observe("y", dist.Normal(costly.sum(), 0.7), 0.2)
        return {"costly": costly, "again": costly, "both": both, "plain": b, "constant": X, "none": 3.0 * theta}

    def guide(s: sy.State) -> None:
        s.sample("a", dist.Normal(theta * X, 0.8).to_event(1))
        s.sample("b", dist.Normal(0.1 * theta, 1.2))

    def update_a(s: sy.State, value: Any) -> None:
        s.sample("a", dist.Normal(0.3 * value["both"] + 0.1 * theta, 0.9).to_event(1))

    def update_b(s: sy.State, value: Any) -> None:
        s.sample("b", dist.Normal(value["costly"].sum() * 0.1 + value["again"][0], 1.1))

    return model, guide, update_a, update_b


def gibbs(theta: Any, **options: Any) -> Any:
    model, guide, *kernels = programs(theta)
    return sy.algorithms.gibbs(model, guide, kernels, sweeps=2, **options)


def apg(theta: Any, **options: Any) -> Any:
    model, guide, *kernels = programs(theta)
    return sy.algorithms.apg(model, guide, kernels, sweeps=2, **options)


def by_hand(theta: Any) -> Any:
    """Detached programs whose values still had a gradient: nothing may be kept of them."""
    model, guide, update_a, update_b = programs(theta)
    q: Any = sy.propose(model, guide)
    for kernel in (update_b, update_a, update_b):
        q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.detach(q)))
    return q


def observing(theta: Any) -> Any:
    """A kernel that observes at an address of the target replaces what is there."""
    model, guide, update_a, update_b = programs(theta)

    def kernel(s: sy.State, value: Any) -> None:
        update_b(s, value)
        s.observe("y", dist.Normal(value["costly"].sum(), 1.7), 0.4)

    return sy.propose(model, sy.move(update_a, sy.propose(model, sy.move(kernel, sy.propose(model, guide)))))


@pytest.mark.parametrize(
    ("build", "objective"),
    [
        pytest.param(gibbs, sy.objectives.elbo, marks=pytest.mark.long),
        (apg, None),
        (by_hand, sy.objectives.elbo),
        (by_hand, sy.objectives.apg),
        (observing, sy.objectives.elbo),
        (lambda theta: gibbs(theta, threshold=0.5), sy.objectives.apg),
    ],
)
def test_values_and_gradients_are_those_without_it(build: Any, objective: Any) -> None:
    def loss(theta: Any, optimize: bool) -> Any:
        out = sy.evaluate(build(theta), jax.random.key(0), particles=7, optimize=optimize, objective=objective)
        return jnp.asarray(out.loss) + out.log_z, (out.log_weight, out.value, dict(out.log_density))

    with jax.enable_x64(True):
        ours, theirs = (jax.value_and_grad(loss, has_aux=True)(jnp.asarray(0.7), kept) for kept in (True, False))
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def test_what_is_costly_is_computed_where_its_variable_moves() -> None:
    def count(sweep: list[int]) -> int:
        model, guide, *kernels = programs(0.7)

        def run(key: Any) -> Any:
            q: Any = sy.propose(model, guide)
            for k in sweep:
                q = sy.propose(sy.extend(model, sy.prev(kernels[k])), sy.move(kernels[k], sy.resample(q)))
            return sy.evaluate(q, key, particles=5).log_z

        return str(jax.make_jaxpr(run)(jax.random.key(0))).count(" tanh ")

    assert [count(sweep) for sweep in ([], [1], [1, 1, 1], [0], [1, 0, 1, 1])] == [1, 1, 1, 2, 2]


def test_it_is_kept_from_sweep_to_sweep() -> None:
    model, guide, _, update_b = programs(0.7)

    def run(key: Any) -> Any:
        return sy.evaluate(sy.algorithms.gibbs(model, guide, [update_b], sweeps=5), key, particles=5).log_z

    assert str(jax.make_jaxpr(run)(jax.random.key(0))).count(" tanh ") == 1


def test_chunks_and_both_engines() -> None:
    plain = sy.evaluate(gibbs(0.7), jax.random.key(0), particles=8)
    chunked = sy.evaluate(gibbs(0.7), jax.random.key(0), particles=8, chunk=4)
    universal = sy.evaluate(gibbs(0.7), jax.random.key(0), particles=8, engine="universal")
    for other in (chunked, universal):
        np.testing.assert_allclose(plain.log_weight, other.log_weight, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(plain.value["both"], np.asarray(other.value["both"]), rtol=2e-4, atol=2e-4)
