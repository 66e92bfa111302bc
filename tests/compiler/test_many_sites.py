"""Programs with many draws: their first numbers are computed at once, and are the same."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.compiler import keys
from steelyard.compiler.passes import EVERY
from steelyard.compiler.previews import Previews
from steelyard.compiler.randomness import First, Kind, first_of, particle_key, scattered

KEY, PARTICLES = jax.random.key(4), 5
WORDS = scattered(KEY)


def of_every_kind(s: sy.State, a: Any) -> Any:
    """Draws made of a normal number, of bits, of keys that are split, and of Threefry as it is in JAX."""
    x = s.sample("normal", dist.Normal(a, 2.0))
    s.sample("one", dist.Normal(jnp.zeros(1), 1.0).to_event(1))
    s.sample("three", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    s.sample("log normal", dist.LogNormal(0.3 * x, 0.5))
    s.sample("half normal", dist.HalfNormal(0.5))
    s.sample("uniform", dist.Uniform(-1.0, a))
    flag = s.sample("flag", dist.Bernoulli(0.4))
    s.sample("category", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    s.sample("student", dist.StudentT(5.0))
    s.sample("count", dist.Poisson(3.0))
    with s.when(flag == 1):
        s.sample("shift", dist.Normal(x, 1.0))
    return x


def chain(length: int) -> Callable[..., Any]:
    def model(s: sy.State, a: Any) -> Any:
        z = 0.0
        for t in range(length):
            z = s.sample(f"z{t}", dist.Normal(a * z, 1.0))
            s.observe(f"x{t}", dist.Normal(z, 0.7), 0.1 * t)
        return z

    return model


@pytest.fixture
def none_is_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FEW", 0)


def is_together(compiled: Any) -> bool:
    return 'inlineable = "false"' in compiled.as_text()


def assert_same(x: Any, y: Any, tolerance: float = 0.0) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), x, y)


def test_draws_of_every_kind_are_the_same(none_is_few: None) -> None:
    def run(a: Any, optimize: Any, **options: Any) -> Any:
        return sy.evaluate(of_every_kind, KEY, a, particles=PARTICLES, optimize=optimize, **options).trace

    given = {"normal": jnp.linspace(-1.0, 1.0, PARTICLES), "flag": jnp.arange(PARTICLES) % 2}
    for options in ({}, {"chunk": 2}, {"given": given}):
        together, apart = (jax.jit(lambda a, o=o: run(a, o, **options)).lower(1.5) for o in (["draws"], False))  # noqa: B023
        assert is_together(together) and not is_together(apart)
        assert_same(together.compile()(1.5), apart.compile()(1.5))


def test_under_vmap_and_grad(none_is_few: None) -> None:
    def total(a: Any, key: Any, optimize: Any) -> Any:
        out = sy.evaluate(chain(3), key, a, particles=PARTICLES, optimize=optimize)
        return out.log_z + jnp.sum(out.value)

    def run(optimize: Any) -> Any:
        every = jax.vmap(jax.value_and_grad(total), (0, 0, None))
        return jax.jit(lambda a, k: every(a, k, optimize)).lower(jnp.array([0.3, 0.9]), jax.random.split(KEY, 2))

    together, apart = run(["draws"]), run(False)
    assert is_together(together) and not is_together(apart)
    arguments = jnp.array([0.3, 0.9]), jax.random.split(KEY, 2)
    assert_same(together.compile()(*arguments), apart.compile()(*arguments), 1e-5)


def test_in_a_loop(none_is_few: None) -> None:
    def step(q: Any, x: Any) -> Any:
        return sy.propose(sy.extend(chain(3), sy.prev(kernel)), sy.move(kernel, sy.resample(q)))

    def kernel(s: sy.State, z: Any) -> Any:
        return s.sample("z2", dist.Normal(0.5 * z, 1.0))

    def run(optimize: Any) -> Any:
        q = sy.scan(step, sy.propose(chain(3), chain(3)), jnp.arange(4))
        return sy.evaluate(q, KEY, 0.9, particles=PARTICLES, optimize=optimize).trace

    # Outside of `jit` the loop is compiled, and the rest is not.
    for together in (jax.jit(lambda: run(EVERY))(), run(EVERY)):
        assert_same(together, jax.jit(lambda: run(EVERY - {"draws"}))(), 1e-5)


def filtered(calls: list[int]) -> Any:
    """A filter whose step draws some numbers, one of them a normal one."""

    def step(q: Any, y: Any) -> Any:
        def transition(s: sy.State, z: Any) -> Any:
            calls.append(1)
            z = s.sample("z", dist.Normal(0.9 * z, 1.0))
            s.sample("u", dist.Uniform(0.0, 1.0))
            s.observe("x", dist.Normal(z, 0.7), y)
            return z

        return sy.move(transition, q)

    def start(s: sy.State) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.sample("u", dist.Uniform(0.0, 1.0))
        s.factor("x", 0.0)
        return z

    return sy.scan(step, start, jnp.arange(3.0), keep=["z", "u"])


def test_a_step_runs_once_for_its_preview_and_once_for_its_draws(
    none_is_few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lowered() -> Any:
        calls: list[int] = []
        run = jax.jit(lambda key: sy.evaluate(filtered(calls), key, particles=PARTICLES, optimize=["draws"]).trace)
        return run.lower(KEY), len(calls)

    seen, calls = lowered()
    assert calls == 2 and is_together(seen)

    # What is expected may be wrong. Then the program runs once more.
    swapped = keys.Drawn((("bits", (1,)), ("normal", (2,))))
    monkeypatch.setattr(Previews, "expected_draws", lambda self, number: swapped)
    other, calls = lowered()
    assert calls > 2
    assert_same(seen.compile()(KEY), other.compile()(KEY))


def test_double_precision_is_drawn_one_by_one(none_is_few: None) -> None:
    with jax.enable_x64(True):
        together, apart = (
            jax.jit(lambda o=o: sy.evaluate(chain(2), KEY, 0.9, particles=PARTICLES, optimize=o).trace).lower()
            for o in (["draws"], False)
        )
        assert not is_together(together)
        assert_same(together.compile()(), apart.compile()())


@pytest.mark.parametrize("kind", ["bits", "normal"])
def test_a_key_with_its_first_number_is_that_key(kind: Kind) -> None:
    plain = particle_key(WORDS, 3, 2, 7)
    ours = particle_key(WORDS, 3, 2, 7, First(kind, first_of(kind, plain)))
    for derive in (
        lambda key: key,
        lambda key: jax.random.fold_in(key, 5),
        lambda key: jax.random.split(key, 3)[1],
        lambda key: jax.random.split(key, (2, 2))[1, 0],
    ):
        for shape in ((), (1,), (4,), (20,)):
            for dtype in (jnp.uint8, jnp.uint16, jnp.uint32):
                bits = (jax.random.bits(derive(key), shape, dtype) for key in (ours, plain))
                np.testing.assert_array_equal(*bits)
            np.testing.assert_array_equal(*(jax.random.normal(derive(key), shape) for key in (ours, plain)))


def test_a_site_costs_the_same_whatever_their_number() -> None:
    def operations(length: int) -> tuple[int, int]:
        run = jax.jit(lambda key: sy.evaluate(chain(length), key, 0.9, particles=PARTICLES).log_z)
        text = run.lower(jax.random.key(0)).compile().as_text()
        return text.count(" = "), text.count(" shift-left(")

    (few, hashes), (more, same), (many, _) = (operations(length) for length in (20, 40, 80))
    # A hash has twenty rotations; written out at every site there would be 400 more.
    assert same <= hashes
    assert many - more < 2.2 * (more - few) < 2.2 * 20 * 40
