"""Metropolis-Hastings with programs as proposals, exactly."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy


def model(s: sy.State) -> Any:
    """A switch decides whether there is a colour, which is observed with noise."""
    on = s.sample("on", dist.Bernoulli(0.4))
    with s.when(on == 1):
        colour = s.sample("colour", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    s.observe("x", dist.Bernoulli(0.15 + 0.2 * on * (1 + colour)), 1)
    return on, colour


def jump(s: sy.State, value: Any) -> None:
    """Turn the switch, and choose a colour where it is on afterwards: a reversible jump."""
    on = s.sample("on", dist.Bernoulli(0.7 - 0.3 * value[0]))
    with s.when(on == 1):
        s.sample("colour", dist.Categorical(jnp.array([0.5, 0.25, 0.25])))


def switch(s: sy.State, value: Any) -> None:
    """Turn the switch alone: there is no way back to a colour, and no step to or from it."""
    s.sample("on", dist.Bernoulli(0.5))


def recolour(s: sy.State, value: Any) -> None:
    """Change the colour in a way that depends on the old one."""
    with s.when(value[0] == 1):
        s.sample("colour", dist.Categorical(jnp.array([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.2, 0.3]])[value[1]]))


@pytest.mark.parametrize("f", [jump, switch, recolour])
def test_exact_for_variables_that_come_and_go(f: Any) -> None:
    sy.testing.assert_properly_weighted(sy.metropolis(f, model), particles=1)


def test_exact_in_sweeps() -> None:
    sy.testing.assert_properly_weighted(sy.metropolis(recolour, sy.metropolis(jump, model)), particles=1)


def test_exact_as_a_proposal_and_inside_of_other_programs() -> None:
    def coin(s: sy.State, p: Any = 0.3) -> Any:
        a = s.sample("a", dist.Bernoulli(p))
        s.observe("y", dist.Bernoulli(0.2 + 0.5 * a), 1)
        return a

    def again(s: sy.State, a: Any) -> Any:
        return s.sample("a", dist.Bernoulli(0.6 - 0.3 * a))

    def after(s: sy.State, a: Any) -> None:
        s.sample("b", dist.Bernoulli(0.1 + 0.5 * a))

    walk = sy.metropolis(again, sy.resample(coin))
    sy.testing.assert_properly_weighted(sy.compose(after, walk), particles=1)
    sy.testing.assert_properly_weighted(sy.propose(sy.temper(coin, 2.0), walk), particles=2)
    sy.testing.assert_properly_weighted(sy.metropolis(again, coin, steps=3), particles=1)
    sy.testing.assert_properly_weighted(
        sy.scan(lambda q, _: sy.metropolis(again, q), coin, None, length=2), particles=1
    )


def test_of_several_steps_is_the_written_out_program() -> None:
    def three(q: Any) -> Any:
        return sy.metropolis(again, sy.metropolis(again, sy.metropolis(again, q)))

    def chain(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", dist.Normal(z, 0.5), 1.0)
        return z

    def again(s: sy.State, z: Any) -> None:
        s.sample("z", dist.Normal(0.9 * z, 0.4))

    key = jax.random.key(0)
    one, other = (sy.evaluate(q, key, particles=7) for q in (sy.metropolis(again, chain, steps=3), three(chain)))
    np.testing.assert_allclose(one.trace["z"], other.trace["z"], rtol=1e-6)
    np.testing.assert_allclose(one.log_density["x"], other.log_density["x"], rtol=1e-5)
    assert len(one.levels) == 1
    rates = [level.acceptance for level in other.levels]
    np.testing.assert_allclose(one.levels[0].acceptance, np.mean(rates), rtol=1e-5)
    np.testing.assert_allclose(one.value, one.trace["z"])
    still = sy.evaluate(sy.metropolis(again, chain, steps=0), key, particles=7)
    assert still.levels[-1].jump == 0


def test_moments_of_a_continuous_model() -> None:
    """Normal prior and likelihood: mean 0.8 x, variance 0.2. The proposal is lopsided."""

    def normal(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", dist.Normal(z, 0.5), 1.5)
        return z

    def lopsided(s: sy.State, z: Any) -> None:
        s.sample("z", dist.Gumbel(0.5 * z, 0.8))

    q = sy.metropolis(lopsided, sy.resample(normal), steps=30)
    out = jax.jit(lambda key: sy.evaluate(q, key, particles=20_000))(jax.random.key(1))
    z = np.asarray(out.trace["z"])
    assert abs(z.mean() - 1.2) < 5 * (0.2 / 20_000) ** 0.5
    assert abs(z.var() - 0.2) < 5 * 0.2 * (2 / 20_000) ** 0.5


def test_values_are_detached_and_densities_learn() -> None:
    def tilted(m: Any) -> Any:
        return lambda s: s.sample("z", dist.Normal(m, 1.0))

    def again(s: sy.State, z: Any) -> None:
        s.sample("z", dist.Normal(z, 1.0))

    def run(m: Any, steps: int) -> Any:
        out = sy.evaluate(sy.metropolis(again, tilted(m), steps=steps), jax.random.key(0), particles=5)
        return out.trace["z"], (out.trace["z"].sum(), out.value.sum(), out.log_density["z"].sum())

    for steps in (1, 3):
        (z, _), slopes = run(0.5, steps), jax.jacobian(lambda m: run(m, steps)[1])(0.5)  # noqa: B023
        np.testing.assert_allclose(slopes[:2], 0.0)
        np.testing.assert_allclose(slopes[2], (z - 0.5).sum(), rtol=1e-5)


def test_a_step_costs_its_markov_blanket() -> None:
    """One more step of one variable adds the same number of operations, whatever the length of the chain."""

    def chain(length: int) -> Any:
        def f(s: sy.State) -> None:
            z: Any = 0.0
            for t in range(length):
                z = s.sample(f"z{t}", dist.Normal(jnp.sin(z), 1.0))
                s.observe(f"x{t}", dist.StudentT(3.0, z, 1.0), 0.1 * t)

        return f

    def again(s: sy.State, _: Any) -> None:
        s.sample("z2", dist.Normal(0.0, 1.0))

    def operations(length: int, steps: int) -> Any:
        q: Any = sy.propose(chain(length), chain(length))
        for _ in range(steps):
            q = sy.metropolis(again, q)
        compiled = jax.jit(lambda key: sy.evaluate(q, key, particles=1000).trace).lower(jax.random.key(0)).compile()
        return compiled.cost_analysis()["flops"]

    short, long = (operations(n, 3) - operations(n, 1) for n in (5, 20))
    assert long < 1.2 * short


def test_a_sweep_decides_each_step_once() -> None:
    """The compiled program grows with the steps; it grew with their square, where each decided all before it again."""

    def walk(t: int) -> Any:
        return lambda s, zs: s.sample(f"z{t}", dist.Normal(zs[t], 0.5))

    def lines(length: int) -> int:
        def chain(s: sy.State) -> Any:
            zs: list[Any] = [0.0]
            for t in range(length):
                zs.append(s.sample(f"z{t}", dist.Normal(zs[-1], 1.0)))
            return tuple(zs[1:])

        q: Any = chain
        for t in range(length):
            q = sy.metropolis(walk(t), q)
        run = jax.jit(lambda key: sy.evaluate(q, key, particles=100).trace)
        return run.lower(jax.random.key(0)).compile().as_text().count("\n")

    assert lines(12) < 2.2 * lines(6)


def test_impossible_and_infinite_ratios() -> None:
    def half(s: sy.State) -> Any:
        z = s.sample("z", dist.Uniform(0.0, 1.0))
        s.factor("f", jnp.where(z < 0.5, 0.0, -jnp.inf))
        return z

    def far(s: sy.State, z: Any) -> None:
        s.sample("z", dist.Normal(0.25, 0.5))

    out = jax.jit(lambda key: sy.evaluate(sy.metropolis(far, half, steps=5), key, particles=5000))(jax.random.key(0))
    alive = np.isfinite(np.asarray(out.log_weight))
    z = np.asarray(out.trace["z"])[alive]
    assert ((z >= 0) & (z < 0.5)).all()
    assert abs(z.mean() - 0.25) < 5 * (0.5 / 12**0.5) / alive.sum() ** 0.5


def test_errors_name_the_remedy() -> None:
    def z(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0))

    def other(s: sy.State, z: Any) -> None:
        s.sample("y", dist.Normal(0.0, 1.0))

    def observes(s: sy.State, z: Any) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))
        s.factor("f", 0.3)

    key = jax.random.key(0)
    with pytest.raises(sy.AddressError, match="samples 'y', which is no variable"):
        sy.evaluate(sy.metropolis(other, z), key, particles=2)
    with pytest.raises(sy.ObservedKernelError, match="observes 'f'"):
        sy.evaluate(sy.metropolis(observes, z), key, particles=2)
    with pytest.raises(sy.GrammarError, match="primitive"):
        sy.metropolis(sy.resample(z), z)


@pytest.mark.parametrize("optimize", [True, False])
def test_a_presence_that_is_a_constant_stays_one_in_a_loop(optimize: bool) -> None:
    def there(s: sy.State, flag: Any) -> None:
        with s.when(flag == 1):
            s.sample("z", dist.Normal(0.0, 1.0))

    def jump(s: sy.State, _: Any) -> None:
        s.sample("z", dist.Normal(0.5, 1.0))

    out = sy.evaluate(sy.metropolis(jump, there, steps=2), jax.random.key(0), 1, particles=3, optimize=optimize)
    assert out.trace.present("z") is True
