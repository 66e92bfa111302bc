"""The side conditions of the rules: errors that name the addresses, the combinator and the remedy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, run, universal

drawn: list[str] = []


class Counted:
    """A normal distribution that notes when it is really drawn from, and not only traced."""

    def sample(self, key: jax.Array) -> jax.Array:
        jax.debug.callback(drawn.append, "drawn")
        return jax.random.normal(key)

    def log_prob(self, value: Any) -> Any:
        return dist.Normal(0.0, 1.0).log_prob(value)


def first(s: sy.State) -> jax.Array:
    s.observe("x", Counted(), 0.3)
    return s.sample("z", Counted())


def again(s: sy.State, z: jax.Array) -> jax.Array:
    return s.sample("z", Counted()) + z


def observes(s: sy.State, z: jax.Array) -> None:
    s.sample("u", Counted())
    s.observe("y", Counted(), z)


def scores(s: sy.State, z: jax.Array) -> None:
    s.factor("y", z)


def observes_x(s: sy.State, z: jax.Array) -> None:
    s.observe("x", Counted(), z)


WRONG: dict[str, tuple[Any, type[sy.SteelyardError], list[str]]] = {
    "compose": (
        sy.compose(again, first),
        sy.AddressError,
        ["compose(again, first)", "'z'", "rename(f, {'z': ...})", "move(f, q)"],
    ),
    "compose that observes twice": (sy.compose(observes_x, first), sy.AddressError, ["'x'", "rename(f, {'x': ...})"]),
    "extend": (sy.extend(first, again), sy.AddressError, ["extend(first, again)", "'z'", "prev(f)"]),
    "extend that observes": (
        sy.extend(first, observes),
        sy.ObservedKernelError,
        ["extend(first, observes)", "the kernel observes observes 'y'", "Observe it in the target program"],
    ),
    "extend with a factor": (sy.extend(first, scores), sy.ObservedKernelError, ["extend(first, scores)", "'y'"]),
    "propose": (
        sy.resample(sy.propose(sy.extend(first, observes), sy.compose(again, first))),
        sy.AddressError,
        ["compose(again, first)"],
    ),
    "the target of a propose": (
        sy.resample(sy.propose(sy.extend(first, observes), first)),
        sy.ObservedKernelError,
        ["extend(first, observes)"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_conditions_are_checked_before_anything_is_drawn(name: str) -> None:
    q, kind, expected = WRONG[name]
    for ask in (lambda: sy.evaluate(q, KEY, particles=2), lambda: sy.addresses(q), lambda: sy.check(q)):
        drawn.clear()
        with pytest.raises(kind) as error:
            ask()
        jax.effects_barrier()
        assert drawn == []
        for part in expected:
            assert part in str(error.value)


@pytest.mark.parametrize("name", WRONG)
def test_conditions_hold_in_the_universal_engine_too(name: str) -> None:
    q, kind, _ = WRONG[name]
    with pytest.raises(kind):
        universal(q, particles=2)


def test_addresses_may_overlap_where_no_particle_has_both() -> None:
    """With concrete values a domain is what the particles have."""

    def some(s: sy.State, sign: int) -> int:
        if s.sample("flag", dist.Bernoulli(0.5)) == 1:
            s.sample("z", dist.Normal(0.0, 1.0))
            return 1
        return 0

    def others(s: sy.State, has_z: int) -> None:
        if not has_z:
            s.sample("z", dist.Normal(0.0, 1.0))

    out = universal(sy.compose(others, some), 1, particles=12)
    assert out.trace.present("z") is True or all(out.trace.present("z"))


def test_near_misses_are_remarked_but_allowed() -> None:
    def model(s: sy.State) -> None:
        s.sample("weight", dist.Normal(0.0, 1.0))

    def guide(s: sy.State) -> None:
        s.sample("Weight", dist.Normal(0.0, 1.0))

    q = sy.propose(model, guide)
    assert [remark.kind for remark in sy.check(q)] == ["spelling"]
    assert run(q, particles=2).log_weight.tolist() == [0.0, 0.0]


def impossible(s: sy.State, value: Any) -> None:
    s.sample("z", dist.Normal(0.0, 1.0))
    s.factor("never", value)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
@pytest.mark.parametrize(("value", "problem"), [(-jnp.inf, "every particle has weight zero"), (jnp.nan, "weight NaN")])
def test_weights_without_information_are_an_error(engine: Any, value: Any, problem: str) -> None:
    with pytest.raises(sy.WeightError) as error:
        sy.evaluate(impossible, KEY, value, particles=3, engine=engine)
    for part in ("impossible: ", problem, "'never'"):
        assert part in str(error.value)
    with pytest.raises(sy.WeightError, match=r"from propose\(impossible\) on"):
        sy.evaluate(sy.resample(sy.propose(impossible, lambda s, v: None)), KEY, value, particles=3, engine=engine)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_a_single_nan_is_an_error_and_a_single_zero_is_not(engine: Any) -> None:
    def uneven(s: sy.State, bad: Any) -> None:
        index = s.sample("index", dist.Categorical(jnp.ones(3) / 3))
        s.factor("f", jnp.where(index == 1, bad, 0.0))

    given = {"index": jnp.arange(3)}
    assert sy.evaluate(uneven, KEY, -jnp.inf, particles=3, given=given, engine=engine).log_z > -2
    with pytest.raises(sy.WeightError, match="NaN"):
        sy.evaluate(uneven, KEY, jnp.nan, particles=3, given=given, engine=engine)


def test_weights_of_zero_are_an_error_in_a_scan_and_under_a_gradient_of_a_detached_program() -> None:
    def impossible(s: sy.State, x: Any = 0.0) -> Any:
        s.sample("z", dist.Normal(x, 1.0))
        s.factor("f", -jnp.inf)
        return x

    loop = sy.scan(lambda q, x: sy.resample(q), impossible, None, length=2)
    with pytest.raises(sy.WeightError, match="from resample of step 1 of 2 on"):
        sy.evaluate(loop, jax.random.key(0), particles=3)

    def loss(x: Any) -> Any:
        return sy.evaluate(
            sy.detach(sy.resample(sy.move(impossible, impossible))), jax.random.key(0), x, particles=3
        ).log_z

    with pytest.raises(sy.WeightError, match="weight zero"):
        jax.grad(loss)(0.5)
