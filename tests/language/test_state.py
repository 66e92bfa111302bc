"""What a program may ask of its state, and what it is told when it asks wrongly."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY, run, universal

drawn: list[str] = []


class Counted:
    """A normal distribution that notes when it is really drawn from, and not only traced."""

    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()

    def sample(self, key: jax.Array) -> jax.Array:
        jax.debug.callback(drawn.append, "drawn")
        return jax.random.normal(key)

    def log_prob(self, value: Any) -> Any:
        return dist.Normal(0.0, 1.0).log_prob(value)


def twice(s: sy.State) -> None:
    s.sample("ok", Counted())
    s.sample("z", Counted())
    s.sample("z", Counted())


def sampled_and_observed(s: sy.State) -> None:
    s.sample("z", Counted())
    s.observe("z", Counted(), 0.0)


def observed_and_factor(s: sy.State) -> None:
    s.observe("z", Counted(), 0.0)
    s.factor("z", 0.0)


def in_both_branches(s: sy.State) -> None:
    flag = s.sample("flag", Counted()) > 0
    with s.when(flag):
        s.sample("z", Counted())
    with s.when(~flag):
        s.sample("z", Counted())


def no_distribution(s: sy.State) -> None:
    s.sample("ok", Counted())
    s.sample("z", 3.0)


def observes_without_distribution(s: sy.State) -> None:
    s.sample("ok", Counted())
    s.observe("z", "Normal", 3.0)


def vector_factor(s: sy.State) -> None:
    s.sample("ok", Counted())
    s.factor("z", jnp.zeros(3))


def vector_flag(s: sy.State) -> None:
    with s.when(s.sample("z", Counted()) > jnp.zeros(3)):
        s.factor("f", 1.0)


def offered_a_vector(s: sy.State) -> None:
    s.sample("ok", Counted())
    s.sample("z", dist.Normal(jnp.zeros(3), 1.0))


WRONG: list[tuple[Any, type[sy.SteelyardError], list[str]]] = [
    (twice, sy.AddressError, ["'z' is used twice", "f'z{i}'"]),
    (sampled_and_observed, sy.AddressError, ["'z' is used twice"]),
    (observed_and_factor, sy.AddressError, ["'z' is used twice"]),
    (in_both_branches, sy.AddressError, ["'z' is used twice"]),
    (no_distribution, sy.ArgumentError, ["'z' was given 3.0", "sample(key)", "numpyro.distributions.Normal"]),
    (observes_without_distribution, sy.ArgumentError, ["'z' was given 'Normal'", "log_prob(value)"]),
    (vector_factor, sy.ArgumentError, ["the factor 'z' has shape (3,)", "Sum it"]),
    (vector_flag, sy.ArgumentError, ["when() takes one Boolean", "(3,)"]),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("program", "kind", "expected"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_wrong_programs_are_refused_before_anything_is_drawn(program: Any, kind: Any, expected: list[str]) -> None:
    drawn.clear()
    with pytest.raises(kind) as error:
        sy.evaluate(program, KEY, particles=2)
    jax.effects_barrier()
    assert drawn == []
    for part in [f"{program.__name__} ({__file__}:{program.__code__.co_firstlineno})", *expected]:
        assert part in str(error.value)


def test_the_note_of_draws_works() -> None:
    drawn.clear()
    sy.evaluate(lambda s: s.sample("z", Counted()), KEY, particles=2)
    jax.effects_barrier()
    assert drawn


def test_a_proposed_value_of_another_shape_is_refused_before_anything_is_drawn() -> None:
    drawn.clear()
    with pytest.raises(sy.AddressError) as error:
        sy.evaluate(sy.propose(offered_a_vector, lambda s: s.sample("z", Counted())), KEY, particles=2)
    jax.effects_barrier()
    assert drawn == []
    for part in ("offered_a_vector (", "'z'", "shape ()", "shape (3,)", "rename one of them"):
        assert part in str(error.value)


@pytest.mark.parametrize("shape", [(3,), (4, 3), (1, 3), (3, 1)])
def test_shapes_are_compared_as_they_are_even_where_they_would_broadcast(shape: tuple[int, ...]) -> None:
    def guide(s: sy.State) -> None:
        s.sample("z", dist.Normal(jnp.zeros(shape), 1.0))

    def model(s: sy.State) -> None:
        s.sample("z", dist.Normal(jnp.zeros((3, 3)), 1.0).to_event(1))

    for engine in ("vectorized", "universal"):
        with pytest.raises(sy.AddressError, match="'z'"):
            sy.evaluate(sy.propose(model, guide), KEY, particles=3, engine=engine)  # pyright: ignore


def test_both_branches_may_use_an_address_where_values_are_concrete() -> None:
    def branches(s: sy.State) -> Any:
        flag = bool(s.sample("flag", dist.Bernoulli(0.5)) == 1)
        with s.when(flag):
            a = s.sample("z", dist.Normal(10.0, 0.1))
        with s.when(not flag):
            b = s.sample("z", dist.Normal(-10.0, 0.1))
        return a if flag else b

    out = universal(branches, particles=8)
    flags = np.asarray(out.trace["flag"]) == 1
    assert 0 < flags.sum() < 8
    assert out.trace.present("z") is True
    assert ((np.asarray(out.trace["z"]) > 0) == flags).all()
    np.testing.assert_array_equal(out.value, out.trace["z"])


def test_branching_in_the_vectorized_engine_is_answered_with_a_remedy() -> None:
    def branches(s: sy.State) -> None:
        if s.sample("z", dist.Normal(0.0, 1.0)) > 0:
            s.sample("v", dist.Normal(0.0, 1.0))

    for ask in (lambda: sy.evaluate(branches, KEY, particles=2), lambda: sy.addresses(branches)):
        with pytest.raises(sy.ArgumentError, match=r'branches.*engine="universal".*s\.when\(flag\)'):
            ask()


def test_observe_and_sample_return_the_value() -> None:
    def program(s: sy.State, x: jax.Array) -> tuple[Any, Any, Any]:
        return s.observe("x", dist.Normal(0.0, 1.0), x), s.sample("z", dist.Normal(0.0, 1.0)), s.factor("f", 0.0)

    x, z, nothing = run(program, 2.5, particles=3).value
    assert x.tolist() == [2.5] * 3
    assert len(set(z.tolist())) == 3
    assert nothing is None


def test_weights_of_a_primitive_are_observations_and_reused_values() -> None:
    def program(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(1.0, 2.0))
        v = s.sample("v", dist.Normal(z, 1.0))
        s.observe("x", dist.Normal(v, 0.5), 0.3)
        s.factor("f", -1.5)

    z = jnp.array([0.1, -0.7, 2.0])
    for out in (run(program, particles=3, given={"z": z}), universal(program, particles=3, given={"z": z})):
        np.testing.assert_allclose(out.trace["z"], z)
        x = dist.Normal(jnp.asarray(np.asarray(out.trace["v"])), 0.5).log_prob(0.3)
        np.testing.assert_allclose(out.log_weight, dist.Normal(1.0, 2.0).log_prob(z) + x - 1.5, rtol=1e-5)
        assert set(out.trace) == {"z", "v"}
        assert set(out.log_density) == {"z", "v", "x", "f"}
