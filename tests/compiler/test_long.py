"""Long programs that are written out: what is compiled in segments, taken later or kept is the same, and costs no square."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler import segments

PARTICLES = 6


def chain(length: int) -> Callable[..., Any]:
    """A chain of states, which returns them, and a quantity that depends on two of them and on a parameter."""

    def model(s: sy.State, a: Any) -> Any:
        zs, z = [], jnp.zeros(())
        for t in range(length):
            z = s.sample(f"z{t}", dist.Normal(a * z, 1.0))
            s.observe(f"x{t}", dist.Normal(z, 0.7), 0.1 * t)
            zs.append(z)
        return zs, a * zs[0] * zs[1]

    return model


def update(t: int) -> Callable[..., None]:
    """Propose a state, in a way that depends on the quantity."""

    def kernel(s: sy.State, value: Any) -> None:
        zs, quantity = value
        s.sample(f"z{t}", dist.Normal(0.8 * zs[t] + 0.1 * jnp.tanh(quantity), 0.5))

    return kernel


def steps(length: int) -> Any:
    """Metropolis steps, one after the other."""
    q: Any = sy.propose(chain(length), chain(length))
    for t in range(length):
        q = sy.metropolis(update(t), q)
    return q


def once(length: int) -> Any:
    """The same sweep as a scan of one step, which is written out."""

    def sweep(q: Any, _: Any) -> Any:
        for t in range(length):
            q = sy.metropolis(update(t), q)
        return q

    return sy.scan(sweep, sy.propose(chain(length), chain(length)), jnp.arange(1))


def gibbs(length: int) -> Any:
    """Updates by propose and resample: most variables are taken from ancestors many times before anybody looks."""
    q: Any = sy.propose(chain(length), chain(length))
    for t in range(length):
        kernel = update(t)
        q = sy.propose(sy.extend(chain(length), sy.prev(kernel)), sy.move(kernel, sy.resample(q)))
    return q


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """The length of a chain whose updates are long enough to be compiled in segments."""
    monkeypatch.setattr(segments, "LONG", 8)
    monkeypatch.setattr(segments, "MANY", 200)
    monkeypatch.setattr(segments, "SEGMENT", 100)
    return 4


@pytest.mark.parametrize("program", [steps, once, gibbs])
def test_what_is_compiled_in_segments_is_the_same(few: int, program: Callable[[int], Any]) -> None:
    """Only long programs are, and only under `jit`."""
    q, key = program(few), jax.random.key(0)

    def run(a: Any, **options: Any) -> Any:
        out = sy.evaluate(q, key, a, particles=PARTICLES, **options)
        return out.log_weight, out.trace, out.log_density, out.value

    compiled = jax.jit(run).lower(0.9)
    apart = [line for line in compiled.as_text().splitlines() if 'inlineable = "false"' in line]
    # Segments are called, and nothing in them is compiled apart: it would be slow.
    assert len(apart) > 1 and all("call @" in line for line in apart)
    assert len(apart) == sum(line.count("@run") for line in apart)
    for other in (run(0.9), run(0.9, optimize=False)):
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3), compiled.compile()(0.9), other
        )


def test_under_vmap_each_is_as_if_alone(few: int) -> None:
    q, keys, parameters = gibbs(few), jax.random.split(jax.random.key(2), 3), jnp.array([0.2, 0.9, -0.5])

    def log_z(key: Any, a: Any) -> Any:
        return sy.evaluate(q, key, a, particles=PARTICLES).log_z

    together = jax.jit(jax.vmap(log_z)).lower(keys, parameters)
    assert 'inlineable = "false"' in together.as_text()
    alone = [log_z(key, a) for key, a in zip(keys, parameters, strict=True)]
    np.testing.assert_allclose(together.compile()(keys, parameters), alone, rtol=1e-3)


@pytest.mark.parametrize("program", [steps, pytest.param(gibbs, marks=pytest.mark.long)])
def test_gradients_are_the_same(few: int, program: Callable[[int], Any]) -> None:
    q, key = program(few), jax.random.key(1)

    def total(a: Any, optimize: bool) -> Any:
        out = sy.evaluate(q, key, a, particles=PARTICLES, optimize=optimize)
        return jnp.sum(out.log_weight) + sum(jnp.sum(x) for x in out.log_density.values()) + jnp.sum(out.value[1])

    fast, slow = (jax.jit(jax.grad(total), static_argnums=1)(0.9, x) for x in (True, False))
    np.testing.assert_allclose(fast, slow, rtol=2e-3)


def test_values_after_a_step_carry_no_gradient_and_those_of_a_propose_do() -> None:
    """Also where a quantity was not computed again, because none of its variables moved."""
    q = sy.metropolis(update(3), sy.metropolis(update(2), sy.propose(chain(4), chain(4))))

    def quantity(a: Any, q: Any) -> Any:
        return jnp.sum(sy.evaluate(q, jax.random.key(0), a, particles=PARTICLES).value[1])

    assert jax.grad(quantity)(0.9, q) == 0
    after = sy.propose(sy.extend(chain(4), sy.prev(update(3))), sy.move(update(3), q))
    out = sy.evaluate(after, jax.random.key(0), 0.9, particles=PARTICLES)
    np.testing.assert_allclose(jax.grad(quantity)(0.9, after), jnp.sum(out.trace["z0"] * out.trace["z1"]), rtol=1e-4)


def test_equations_of_a_sweep_grow_with_its_length() -> None:
    def equations(length: int) -> int:
        q = steps(length)
        traced = jax.jit(lambda key: sy.evaluate(q, key, 0.9, particles=PARTICLES).trace).trace(jax.random.key(0))
        return len(traced.jaxpr.eqns)

    assert equations(12) - equations(8) < 1.05 * (equations(8) - equations(4))


def test_a_long_program_of_few_equations_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands as one call: to bind its equations again one by one would take half as long as to trace them."""
    q, key = gibbs(3), jax.random.key(0)

    def loss(a: Any) -> Any:
        return sy.evaluate(q, key, a, particles=PARTICLES).log_z

    as_it_is = jax.jit(loss).trace(0.9).jaxpr
    monkeypatch.setattr(segments, "LONG", 8)
    # Another function, which JAX has not traced yet.
    called = jax.jit(lambda a: loss(a)).trace(0.9).jaxpr
    assert len(called.eqns) < 50 < 1000 < len(as_it_is.eqns)
    (inner,) = [e.params["jaxpr"] for e in called.eqns if len(getattr(e.params.get("jaxpr"), "eqns", ())) > 100]
    assert len(inner.eqns) <= len(as_it_is.eqns)
    value, gradient = jax.jit(jax.value_and_grad(lambda a: loss(a)))(0.9)
    monkeypatch.undo()
    expected, slope = jax.value_and_grad(loss)(0.9)
    np.testing.assert_allclose([value, gradient], [expected, slope], rtol=2e-3)
