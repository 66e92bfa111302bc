"""A scan is the unrolled program: samples, weights, densities, levels, losses and gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.laws.finite import Finite

STEPS = 5
Step = Callable[[Any, Any], Any]


def tempered(s: sy.State, beta: Any) -> Any:
    x = s.sample("x", dist.Normal(0.0, 2.0))
    s.factor("tilt", beta * (dist.Normal(1.5, 0.5).log_prob(x) - dist.Normal(0.0, 2.0).log_prob(x)))
    return x


def kernel(slope: Any) -> Any:
    return lambda s, x: s.sample("x", dist.Normal(slope * x + 0.1, 0.8))


def annealing(q: Any, x: Any) -> Any:
    beta, slope = x
    target = sy.extend(lambda s: tempered(s, beta), sy.prev(kernel(slope)))
    return sy.propose(target, sy.move(kernel(0.9 * slope), sy.resample(q)), objective=sy.objectives.elbo)


def nested(q: Any, x: Any) -> Any:
    beta, slope = x
    target = sy.extend(lambda s: tempered(s, beta), sy.prev(kernel(slope)))
    proposal = sy.move(kernel(0.9 * slope), sy.detach(sy.resample(q, threshold=0.7)))
    return sy.propose(target, proposal, objective=sy.objectives.reverse_kl)


def gibbs(q: Any, x: Any) -> Any:
    _, slope = x

    def joint(s: sy.State) -> Any:
        x = s.sample("x", dist.Normal(0.0, 2.0))
        s.factor("tilt", -0.5 * (x - 1.0) ** 2)
        return x

    return sy.propose(sy.extend(joint, sy.prev(kernel(slope))), sy.move(kernel(slope), q), objective=sy.objectives.iwae)


def start(s: sy.State) -> Any:
    return tempered(s, 0.0)


def parameters() -> Any:
    return jnp.linspace(0.2, 1.0, STEPS), jnp.linspace(0.4, 0.9, STEPS)


def scanned(step: Step, xs: Any, **options: Any) -> Any:
    return sy.scan(step, start, xs, **options)


def written_out(step: Step, xs: Any) -> Any:
    q: Any = start
    for index in range(STEPS):
        q = step(q, jax.tree.map(lambda x: x[index], xs))  # noqa: B023
    return q


def assert_same(a: sy.Evaluation, b: sy.Evaluation, rtol: float = 2e-4) -> None:
    for address in b.log_density:
        np.testing.assert_allclose(a.log_density[address], b.log_density[address], rtol=rtol, atol=1e-4)
    np.testing.assert_allclose(a.trace["x"], b.trace["x"], rtol=rtol, atol=1e-5)
    np.testing.assert_allclose(a.log_weight, b.log_weight, rtol=rtol, atol=1e-4)
    np.testing.assert_allclose(a.value, b.value, rtol=rtol, atol=1e-5)
    np.testing.assert_allclose(a.loss, b.loss, rtol=rtol, atol=1e-4)


@pytest.mark.parametrize("step", [annealing, nested, gibbs])
@pytest.mark.parametrize("unroll", [1, 2])
def test_a_scan_is_the_unrolled_program(step: Step, unroll: int) -> None:
    def run(build: Any) -> Any:
        return jax.jit(lambda key, xs: sy.evaluate(build(xs), key, particles=20))(jax.random.key(3), parameters())

    rolled, plain = run(lambda xs: scanned(step, xs, unroll=unroll)), run(lambda xs: written_out(step, xs))
    assert_same(rolled, plain)
    if plain.ancestors is not None:
        np.testing.assert_array_equal(rolled.ancestors, plain.ancestors)
    # Levels are stacked: those of the unrolled program come step after step.
    per_step = len(rolled.levels)
    for number, level in enumerate(rolled.levels):
        for name in ("log_z_increment", "ess", "max_weight", "ancestors", "loss"):
            expected = [getattr(each, name) for each in plain.levels[number::per_step]]
            np.testing.assert_allclose(getattr(level, name), expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("step", [annealing, nested, gibbs])
def test_gradients_are_those_of_the_unrolled_program(step: Step) -> None:
    def gradient(build: Any) -> Any:
        loss = lambda xs: sy.evaluate(build(step, xs), jax.random.key(3), particles=20).loss  # noqa: E731
        return jax.grad(loss)(parameters())

    expected = gradient(written_out)
    assert jnp.all(expected[1] != 0)
    for rolled, plain in zip(gradient(scanned), expected, strict=True):
        np.testing.assert_allclose(rolled, plain, rtol=2e-3, atol=2e-4)


def test_keys_go_on_after_the_loop() -> None:
    def last(s: sy.State, x: Any) -> Any:
        return s.sample("y", dist.Normal(x, 1.0))

    a = sy.evaluate(sy.compose(last, scanned(annealing, parameters())), jax.random.key(0), particles=6)
    b = sy.evaluate(sy.compose(last, written_out(annealing, parameters())), jax.random.key(0), particles=6)
    np.testing.assert_allclose(a.trace["y"], b.trace["y"], rtol=1e-4, atol=1e-5)


def test_scans_nest_and_run_under_vmap_and_inside_propose_and_compose() -> None:
    def outer(q: Any, xs: Any) -> Any:
        return sy.scan(annealing, q, xs)

    beta, slope = parameters()
    xs = jnp.stack([beta, beta**2]), jnp.stack([slope, 0.8 * slope])
    rolled = sy.evaluate(sy.scan(outer, start, xs), jax.random.key(1), particles=7)
    q: Any = start
    for row in range(2):
        for index in range(STEPS):
            q = annealing(q, (xs[0][row, index], xs[1][row, index]))
    assert_same(rolled, sy.evaluate(q, jax.random.key(1), particles=7))

    final = sy.propose(lambda s: tempered(s, 1.0), scanned(annealing, parameters()))
    keys = jax.random.split(jax.random.key(2), 3)
    batch = jax.vmap(lambda key: sy.evaluate(final, key, particles=7).log_z)(keys)
    single = [sy.evaluate(final, key, particles=7).log_z for key in keys]
    np.testing.assert_allclose(batch, jnp.stack(single), rtol=1e-4)


def test_the_universal_engine_and_log_density_know_scans() -> None:
    q = scanned(nested, parameters())
    universal = sy.evaluate(q, jax.random.key(3), particles=20, engine="universal")
    vectorized = sy.evaluate(q, jax.random.key(3), particles=20)
    np.testing.assert_allclose(universal.trace["x"], vectorized.trace["x"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(universal.log_weight, vectorized.log_weight, rtol=1e-3, atol=1e-3)
    expected = sy.log_density(lambda s: tempered(s, 1.0), {"x": 0.3})
    np.testing.assert_allclose(sy.log_density(q, {"x": 0.3}), expected, rtol=1e-6)
    assert sy.addresses(q).trace == {"x"}


def test_the_oracle_covers_scans() -> None:
    def target(s: sy.State, p: Any = 0.3) -> Any:
        z = s.sample("z", Finite((1 - p, p)))
        s.observe("x", Finite((0.8 - 0.5 * z, 0.2 + 0.5 * z)), 1)
        return z

    def flip(s: sy.State, z: Any) -> Any:
        return s.sample("z", Finite((0.4 + 0.4 * z, 0.6 - 0.4 * z)))

    def step(q: Any, p: Any) -> Any:
        return sy.propose(sy.extend(lambda s: target(s, p), sy.prev(flip)), sy.move(flip, sy.resample(q)))

    q = sy.scan(step, target, np.array([0.45, 0.7]))
    sy.testing.assert_properly_weighted(q, particles=2)


def test_a_step_that_changes_the_structure_is_refused_with_a_difference() -> None:
    def grow(s: sy.State, x: Any) -> Any:
        return s.sample("y", dist.Normal(jnp.zeros(2), 1.0))

    q = sy.scan(lambda q, _: sy.compose(grow, q), start, None, length=3)
    with pytest.raises(sy.LoopStructureError, match="samples 'y', which was not there before"):
        sy.evaluate(q, jax.random.key(0), particles=2)

    def widen(s: sy.State, x: Any = None) -> Any:
        return s.sample("x", dist.Normal(jnp.zeros(2), 1.0))

    q = sy.scan(lambda q, _: sy.propose(widen, sy.move(widen, q)), start, None, length=3)
    with pytest.raises(sy.LoopStructureError, match=r"samples 'x' of float32\[4, 2\] in place of float32\[4\]"):
        sy.evaluate(q, jax.random.key(0), particles=4)

    def named(s: sy.State, x: Any = None) -> Any:
        s.sample("x", dist.Normal(0.0, 1.0))
        return "a text"

    for first, then, message in ((start, named, r"of 'a text' in place of float32\[4\]"), (named, start, "of float32")):
        q = sy.scan(lambda q, _, then=then: sy.propose(then, q), first, None, length=3)
        with pytest.raises(sy.LoopStructureError, match=f"returns 'value' {message}"):
            sy.evaluate(q, jax.random.key(0), particles=4)


@pytest.mark.parametrize("constant", [2.5, jnp.float32(2.5)])
@pytest.mark.parametrize("at_start", [True, False])
def test_a_step_may_return_a_constant(constant: Any, at_start: bool) -> None:
    """In place of a value that differs between particles, or of another constant."""

    def first(s: sy.State) -> Any:
        x = s.sample("x", dist.Normal(0.0, 1.0))
        return 1.5 if at_start else x

    def again(s: sy.State, x: Any) -> Any:
        s.sample("x", dist.Normal(x, 1.0))
        return constant

    def step(q: Any, _: Any) -> Any:
        return sy.propose(sy.extend(lambda s: again(s, 0.5), sy.prev(again)), sy.move(again, sy.resample(q)))

    rolled = sy.scan(step, first, None, length=2)
    plain = step(step(first, None), None)
    assert_same(*(sy.evaluate(sy.move(again, q), jax.random.key(0), particles=4) for q in (rolled, plain)))


def test_lengths_must_be_known() -> None:
    with pytest.raises(sy.ArgumentError, match="one first axis"):
        sy.scan(annealing, start, None)
    with pytest.raises(sy.ArgumentError, match="one first axis"):
        sy.scan(annealing, start, (jnp.zeros(3), jnp.zeros(4)))


def test_a_step_is_traced_a_fixed_number_of_times() -> None:
    calls = []

    def counting(q: Any, x: Any) -> Any:
        calls.append(None)
        return annealing(q, x)

    counts = []
    for length in (3, 300):
        calls.clear()
        xs = jnp.linspace(0.1, 1.0, length), jnp.full(length, 0.7)
        jax.jit(lambda key, xs=xs: sy.evaluate(sy.scan(counting, start, xs), key, particles=5).log_z).lower(
            jax.random.key(0)
        )
        counts.append(len(calls))
    assert counts[0] == counts[1]
