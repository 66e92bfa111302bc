"""What a step of a scan may do with the program so far: use it once, on the value that the scan was called with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

ENGINES = ("vectorized", "universal")
KEY = jax.random.key(0)


def model(s: sy.State, x: Any) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 0.5), x)
    return z


def kernel(s: sy.State, z: Any) -> Any:
    return s.sample("z", dist.Normal(0.9 * z, 0.3))


def good(q: Any, _: Any) -> Any:
    return sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.resample(q)))


def other(s: sy.State, x: Any) -> Any:
    return 3.0 * x


NO_LOOP = {
    "twice": (lambda q, _: sy.compose(sy.rename(q, {"z": "z2", "x": "x2"}), q), "more than once"),
    "on another value": (lambda q, _: sy.propose(model, sy.compose(q, other)), "on another value"),
    "on the value of a kernel": (lambda q, _: sy.propose(model, sy.move(q, other)), "on another value"),
    "not at all": (lambda q, _: sy.propose(model, model), "does not use the program so far"),
    "inside of another loop": (
        lambda q, _: sy.scan(lambda inner, _: sy.resample(q), q, None, length=1),
        "of another scan",
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NO_LOOP)
def test_what_a_loop_cannot_do_is_an_error_with_a_remedy(name: str, engine: Any) -> None:
    step, problem = NO_LOOP[name]
    q = sy.scan(step, model, None, length=2)
    with pytest.raises(sy.LoopStructureError, match=problem) as caught:
        sy.evaluate(q, KEY, 1.0, particles=4, engine=engine)
    assert "write the loop out" in str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_in_a_loop_may_begin_with_the_program_so_far(engine: Any) -> None:
    nested = sy.scan(lambda q, _: sy.scan(good, q, None, length=2), model, None, length=2)
    flat = sy.scan(good, model, None, length=4)
    left, right = (sy.evaluate(q, KEY, 1.0, particles=4, engine=engine) for q in (nested, flat))
    np.testing.assert_allclose(left.log_weight, right.log_weight, rtol=1e-6)
    np.testing.assert_array_equal(left.trace["z"], right.trace["z"])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_value_may_contain_text(engine: Any) -> None:
    def named(s: sy.State, x: Any) -> Any:
        return {"z": model(s, x), "name": "model"}

    def move(s: sy.State, c: Any) -> Any:
        return {"z": kernel(s, c["z"]), "name": c["name"]}

    def step(q: Any, _: Any) -> Any:
        return sy.propose(sy.extend(named, sy.prev(move)), sy.move(move, q))

    out = sy.evaluate(sy.scan(step, named, None, length=3), KEY, 1.0, particles=3, engine=engine)
    assert set(np.ravel(out.value["name"])) == {"model"}
    assert out.value["z"].shape == (3,)


def test_a_text_that_changes_is_refused() -> None:
    def named(s: sy.State, x: Any, name: str = "first") -> Any:
        return {"z": model(s, x), "name": name}

    def renamed(s: sy.State, x: Any) -> Any:
        return named(s, x, "second")

    q = sy.scan(lambda q, _: sy.propose(renamed, q), named, None, length=3)
    with pytest.raises(sy.LoopStructureError, match="'second'"):
        sy.evaluate(q, KEY, 1.0, particles=3)


def test_a_step_that_returns_nothing_is_refused() -> None:
    def silent(s: sy.State, z: Any) -> None:
        s.sample("z", dist.Normal(z, 0.3))
        s.factor("x", 0.0)

    q = sy.scan(lambda q, _: sy.move(silent, q), model, jnp.arange(2.0), keep=["z"])
    with pytest.raises(sy.LoopStructureError, match="returns nothing in place of"):
        sy.evaluate(q, KEY, 1.0, particles=3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_kernel_after_one_that_returns_nothing_says_so(engine: Any) -> None:
    def silent(s: sy.State, z: Any) -> None:
        s.sample("z", dist.Normal(z, 0.3))

    with pytest.raises(sy.ArgumentError, match=r"kernel .* was called with None"):
        sy.evaluate(sy.move(kernel, sy.move(silent, model)), KEY, 1.0, particles=3, engine=engine)
