"""Where a value is from is known in every program that it passes through."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import steelyard as sy
from tests.running import KEY

NORMAL, HALF, POINT = dist.Normal(0.0, 1.0), dist.HalfNormal(1.0), dist.Delta(0.3)


def sampling(distribution: Any, address: str = "z") -> Any:
    def program(s: sy.State, *_: Any) -> Any:
        return s.sample(address, distribution)

    return program


def model(s: sy.State) -> Any:
    z, v = s.sample("z", NORMAL), s.sample("v", NORMAL)
    s.observe("x", dist.Normal(z + v, 1.0), 0.3)
    return z, v


def guide(s: sy.State) -> Any:
    return s.sample("z", NORMAL), s.sample("v", NORMAL)


def kernel(distribution: Any) -> Any:
    def moving(s: sy.State, values: Any) -> Any:
        return s.sample("z", distribution), values[1]

    return moving


def beside(distribution: Any) -> Any:
    def program(s: sy.State, z: Any) -> Any:
        s.sample("a", distribution)
        return z

    return program


def sweep(distribution: Any) -> Any:
    """A second propose for the same target, which takes over densities that did not change."""
    step = kernel(distribution)
    return sy.propose(sy.extend(model, sy.prev(kernel(NORMAL))), sy.move(step, sy.propose(model, guide)))


THROUGH = {
    "rename": lambda d: sy.propose(sampling(NORMAL), sy.rename(sampling(d, "a"), {"a": "z"})),
    "rename the target": lambda d: sy.propose(sy.rename(sampling(NORMAL, "a"), {"a": "z"}), sampling(d)),
    "compose": lambda d: sy.propose(
        sy.extend(sampling(NORMAL), sampling(NORMAL, "a")), sy.compose(sampling(NORMAL, "a"), sampling(d))
    ),
    "resample": lambda d: sy.propose(sampling(NORMAL), sy.resample(sampling(d))),
    "detach": lambda d: sy.propose(sampling(NORMAL), sy.detach(sampling(d))),
    "stick": lambda d: sy.propose(sampling(NORMAL), sy.stick_the_landing(sampling(d))),
    "move": sweep,
    "previous": lambda d: sy.propose(
        sy.extend(sampling(NORMAL), sy.prev(sampling(NORMAL))), sy.move(sampling(NORMAL), sampling(d))
    ),
    "kernel of an extend": lambda d: sy.propose(
        sy.extend(sampling(NORMAL), sampling(NORMAL, "a")), sy.compose(sampling(d, "a"), sampling(NORMAL))
    ),
    "inside of a loop": lambda d: sy.scan(
        lambda q, _: sy.propose(sy.extend(model, sy.prev(kernel(NORMAL))), sy.move(kernel(d), q)),
        sy.propose(model, guide),
        None,
        length=2,
    ),
    "before a loop": lambda d: sy.scan(
        lambda q, _: sy.propose(sy.extend(sampling(NORMAL), sy.prev(sampling(NORMAL))), sy.move(sampling(NORMAL), q)),
        sampling(d),
        None,
        length=2,
    ),
    "from one step to the next": lambda d: sy.scan(
        lambda q, _: sy.compose(
            beside(d),
            sy.propose(sy.extend(sampling(NORMAL), sampling(NORMAL, "a")), q),
        ),
        sy.compose(beside(NORMAL), sampling(NORMAL)),
        None,
        length=2,
    ),
}


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
@pytest.mark.parametrize("name", THROUGH)
def test_it_is_known_after(name: str, engine: Any) -> None:
    if (name, engine) != ("stick", "universal"):
        sy.evaluate(THROUGH[name](NORMAL), KEY, particles=3, engine=engine)
    with pytest.raises(sy.MeasureError, match="Delta"):
        sy.evaluate(THROUGH[name](POINT), KEY, particles=3, engine=engine)
    with pytest.warns(sy.SupportWarning, match="HalfNormal"):
        sy.evaluate(THROUGH[name](HALF), KEY, particles=3, engine=engine)
    if engine == "vectorized":
        assert "support" in [remark.kind for remark in sy.check(THROUGH[name](HALF))]
        with pytest.raises(sy.MeasureError, match="Delta"):
            jax.jit(lambda key: sy.evaluate(THROUGH[name](POINT), key, particles=3).log_z)(KEY)
        with pytest.raises(sy.MeasureError, match="Delta"):
            keys = jax.random.split(KEY, 2)
            jax.vmap(lambda key: sy.evaluate(THROUGH[name](POINT), key, particles=3, chunk=2).log_z)(keys)


def test_where_densities_are_taken_over() -> None:
    """Every kernel is compared, not only the first whose target was traced."""

    def both(first: Any, second: Any) -> Any:
        q = sy.propose(model, guide)
        for d in (first, second):
            q = sy.propose(sy.extend(model, sy.prev(kernel(NORMAL))), sy.move(kernel(d), q))
        return q

    sy.evaluate(both(NORMAL, NORMAL), KEY, particles=2)
    for first, second in ((POINT, NORMAL), (NORMAL, POINT)):
        with pytest.raises(sy.MeasureError, match="'z' is proposed from Delta"):
            sy.evaluate(both(first, second), KEY, particles=2)
    with pytest.warns(sy.SupportWarning):
        sy.evaluate(both(NORMAL, HALF), KEY, particles=2)


def test_a_branch_of_which_particles_differ() -> None:
    def guide(s: sy.State) -> None:
        s.sample("z", HALF if s.sample("coin", dist.Bernoulli(0.5)) else NORMAL)

    out = sy.evaluate(sy.propose(sampling(NORMAL), guide), KEY, particles=20, engine="universal")
    assert out.trace["z"].shape == (20,)


def test_variables_that_some_particles_lack() -> None:
    def optional(distribution: Any) -> Any:
        def program(s: sy.State) -> None:
            coin = s.sample("coin", dist.Bernoulli(0.5))
            with s.when(coin == 1):
                s.sample("z", distribution)

        return program

    sy.evaluate(sy.propose(optional(NORMAL), optional(NORMAL)), KEY, particles=9)
    with pytest.raises(sy.MeasureError):
        sy.evaluate(sy.propose(optional(NORMAL), optional(POINT)), KEY, particles=9)
    with pytest.warns(sy.SupportWarning):
        sy.evaluate(sy.propose(optional(NORMAL), optional(HALF)), KEY, particles=9)


def test_enumeration_shows_what_is_missed_without_a_warning() -> None:
    q = sy.propose(sampling(dist.Categorical(jnp.full(3, 1 / 3))), sampling(dist.Bernoulli(0.5)))
    total = sum(p * out.normalized_weights.size * jnp.exp(out.log_z) for p, out in sy.testing.enumerate(q, particles=1))
    assert float(total) == pytest.approx(2 / 3)
    with pytest.raises(AssertionError):
        sy.testing.assert_properly_weighted(q, particles=1)


def test_it_is_no_part_of_the_structure() -> None:
    """Values from other distributions are the same to JAX, so that nothing is compiled again."""
    traces = 0

    @jax.jit
    def total(trace: Any) -> Any:
        nonlocal traces
        traces += 1
        return trace["z"].sum()

    a, b = (sy.evaluate(sampling(d), KEY, particles=3).trace for d in (NORMAL, HALF))
    assert a.origins["z"] != b.origins["z"]
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert hash(jax.tree.structure(a)) == hash(jax.tree.structure(b))
    total(a), total(b)
    assert traces == 1
