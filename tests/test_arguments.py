"""Keys of either kind, counts out of arrays, and what is refused, wherever they are taken."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import steelyard as sy
from tests.training.programs import exact, identical, square

KEY, WORDS = jax.random.key(3), jax.random.PRNGKey(3)


def model(s: sy.State) -> Any:
    z = s.sample("z", dist.Normal(0.0, 1.0))
    s.observe("x", dist.Normal(z, 1.0), 0.5)
    return z


def guide(s: sy.State) -> None:
    s.sample("z", dist.Normal(0.3, 0.8))


def kernel(s: sy.State, z: Any) -> Any:
    return s.sample("z", dist.Normal(0.5 * z, 1.0))


def start(s: sy.State) -> Any:
    return s.sample("z", dist.Normal(0.0, 1.0))


def level(q: Any, x: Any) -> Any:
    return sy.propose(sy.extend(start, sy.prev(kernel)), sy.move(kernel, q))


def trained(key: Any, **arguments: Any) -> Any:
    given = {"steps": 4, "particles": 2, "data": np.arange(6.0), "batch_size": 3, "optimizer": optax.sgd(0.1)}
    return sy.train(exact(square), jnp.zeros(()), key=key, progress=False, **{**given, **arguments})


TAKES_A_KEY = {
    "evaluate": lambda key: sy.evaluate(model, key, particles=3).log_weight,
    "evaluate, universal": lambda key: sy.evaluate(model, key, particles=2, engine="universal").log_weight,
    "resample": lambda key: sy.evaluate(model, KEY, particles=5).resample(key).trace["z"],
    "train": trained,
    "check_evidence": lambda key: sy.testing.check_evidence(
        model, dist.Normal(0.0, 2**0.5).log_prob(0.5).item(), key=key, particles=500
    ),
}


@pytest.mark.parametrize("words", [WORDS, np.asarray(WORDS)], ids=["JAX", "NumPy"])
@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("function", TAKES_A_KEY)
def test_the_words_of_a_key_are_that_key(function: str, words: Any) -> None:
    assert identical(TAKES_A_KEY[function](words), TAKES_A_KEY[function](KEY))


def test_the_words_of_a_key_are_that_key_under_transformations() -> None:
    def log_weight(key: Any) -> Any:
        return sy.evaluate(model, key, particles=3).log_weight

    words, keys = jax.random.split(WORDS, 2), jax.random.split(KEY, 2)
    assert identical(jax.jit(jax.vmap(log_weight))(words), jax.jit(jax.vmap(log_weight))(keys))


def scanned(**arguments: Any) -> Any:
    return sy.evaluate(sy.scan(level, start, None, **arguments), KEY, particles=3).log_weight


TAKES_A_COUNT = {
    "particles": (lambda n: sy.evaluate(model, KEY, particles=n).log_weight, 3),
    "chunk": (lambda n: sy.evaluate(model, KEY, particles=5, chunk=n).log_weight, 2),
    "resample": (lambda n: sy.evaluate(model, KEY, particles=5).resample(KEY, n).trace["z"], 7),
    "length": (lambda n: scanned(length=n), 3),
    "unroll": (lambda n: scanned(length=5, unroll=n), 2),
    "sweeps": (lambda n: sy.evaluate(sy.algorithms.gibbs(start, start, [kernel], n), KEY, particles=3).log_weight, 2),
    "steps": (lambda n: trained(KEY, steps=n), 3),
    "particles of train": (lambda n: trained(KEY, particles=n), 3),
    "batch_size": (lambda n: trained(KEY, batch_size=n), 3),
    "particles of enumerate": (
        lambda n: list(sy.testing.enumerate(lambda s: s.factor("f", 0.1), particles=n))[0][0],
        2,
    ),
}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("argument", TAKES_A_COUNT)
def test_counts_may_come_out_of_an_array(argument: str, kind: Any) -> None:
    function, count = TAKES_A_COUNT[argument]
    assert identical(function(kind(count)), function(count))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "wrong", [-1, 2.0, np.float32(2.0), True, np.True_, "2", jnp.asarray(2), np.int64(-3), np.ones(1)]
)
@pytest.mark.parametrize("argument", TAKES_A_COUNT)
def test_what_is_no_count_is_refused(argument: str, wrong: Any) -> None:
    function, _ = TAKES_A_COUNT[argument]
    with pytest.raises(sy.ArgumentError, match="known before running and whole, got"):
        function(wrong)


@pytest.mark.parametrize("argument", ["particles", "chunk", "resample", "unroll", "steps", "batch_size"])
def test_none_at_all_are_refused(argument: str) -> None:
    function, _ = TAKES_A_COUNT[argument]
    with pytest.raises(sy.ArgumentError, match="is a positive number"):
        function(0)


def test_a_scan_of_no_steps_is_allowed() -> None:
    assert identical(scanned(length=np.int64(0)), sy.evaluate(start, KEY, particles=3).log_weight)


NO_LOSS: dict[str, tuple[Any, str]] = {
    "a number for each particle": (lambda level: level.log_v, r"<lambda> returned float32 of shape \(3,\).*jnp\.mean"),
    "one number in an array": (lambda level: level.log_v[:1], r"shape \(1,\)"),
    "nothing": (lambda level: None, "returned NoneType"),
    "true or false": (lambda level: level.log_v.mean() > 0, "returned bool of shape"),
}


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
@pytest.mark.parametrize("kind", NO_LOSS)
def test_an_objective_gives_one_real_number(kind: str, engine: Any) -> None:
    objective, message = NO_LOSS[kind]
    message = message.replace("float32", "float(32|64)")
    with pytest.raises(sy.ArgumentError, match=message) as caught:
        sy.evaluate(sy.propose(model, guide), KEY, particles=3, objective=objective, engine=engine)
    assert "propose(model, guide)" in str(caught.value)
    with pytest.raises(sy.ArgumentError, match=message):
        sy.evaluate(sy.propose(model, guide, objective=objective), KEY, particles=3, engine=engine)


@pytest.mark.usefixtures("as_users_run_it")
def test_the_name_of_an_objective_is_refused_with_the_remedy() -> None:
    with pytest.raises(sy.ArgumentError, match=r"propose: .*objective=sy\.objectives\.elbo, got 'iwae'"):
        sy.propose(model, guide, objective="iwae")  # pyright: ignore
