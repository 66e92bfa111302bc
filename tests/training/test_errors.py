"""Mistakes are found before any step is made, and before anything is written."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import steelyard as sy
from tests.training.programs import ARGUMENTS, exact, square


def bare(m: Any) -> Any:
    return sy.propose(lambda s: s.sample("z", dist.Normal(0.0, 1.0)), lambda s: s.sample("z", dist.Normal(m, 1.0)))


def twice(m: Any) -> Any:
    def guide(s: sy.State) -> None:
        s.sample("z", dist.Normal(m, 1.0))
        s.sample("z", dist.Normal(m, 1.0))

    return sy.algorithms.svi(lambda s: s.sample("z", dist.Normal(0.0, 1.0)), guide)


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no objective": ({"program": bare}, sy.ArgumentError, "Give an objective"),
    "no propose": (
        {"program": lambda m: lambda s: None, "objective": sy.objectives.elbo},
        sy.ArgumentError,
        "nothing contributes",
    ),
    "an address twice": ({"program": twice}, sy.AddressError, "'z' is used twice"),
    "not a program": ({"program": lambda m: 3}, sy.GrammarError, "3 is not a program"),
    "no steps": ({"steps": 0}, sy.ArgumentError, r"steps is a positive number, .* got 0\."),
    "fewer than no steps": ({"steps": -1}, sy.ArgumentError, r"steps.* got -1\."),
    "half a step": ({"steps": 2.5}, sy.ArgumentError, r"steps is a positive number, .* whole, got 2\.5"),
    "true steps": ({"steps": True}, sy.ArgumentError, "steps is a positive number, .*got True"),
    "no particles": ({"particles": 0}, sy.ArgumentError, "particles is a positive number"),
    "a seed": ({"key": 0}, sy.ArgumentError, r"jax\.random\.key\(seed\), got 0"),
    "words that are no key": ({"key": jnp.zeros(3, jnp.uint32)}, sy.ArgumentError, r"jax\.random\.key"),
    "two keys": ({"key": jax.random.split(jax.random.key(0))}, sy.ArgumentError, r"jax\.random\.key"),
    "a batch without data": ({"batch_size": 4}, sy.ArgumentError, "batch_size=4 needs data"),
    "an empty batch": (
        {"data": np.zeros(3), "batch_size": 0},
        sy.ArgumentError,
        "batch_size is a positive number.*got 0",
    ),
    "half a batch": (
        {"data": np.zeros(3), "batch_size": 1.5},
        sy.ArgumentError,
        "batch_size is a positive number.*got 1.5",
    ),
    "unequal data": ({"data": (np.zeros((3, 2)), np.zeros(4))}, sy.ArgumentError, r"\[\(3, 2\), \(4,\)\]"),
    "a number for data": ({"data": 1.0}, sy.ArgumentError, "first axis"),
    "a number among the data": ({"data": {"x": np.zeros(3), "y": 1.0}}, sy.ArgumentError, "first axis"),
    "no data": ({"data": ()}, sy.ArgumentError, "first axis"),
    "the name of an objective": ({"objective": "elbo"}, sy.ArgumentError, r"sy\.objectives\.elbo, got 'elbo'"),
    "a loss for each particle": (
        {"program": bare, "objective": lambda level: level.log_v},
        sy.ArgumentError,
        r"returned float32 of shape \(3,\).*jnp\.mean",
    ),
    # Averaged over the minibatch, it would look like a loss.
    "a loss for each particle of a batch": (
        {"program": lambda m, x: bare(m), "data": np.zeros(3), "objective": lambda level: level.log_v},
        sy.ArgumentError,
        r"returned float32 of shape \(3,\)",
    ),
    "a loss and something else": (
        {"program": bare, "objective": lambda level: (level.log_v.mean(), 0)},
        sy.ArgumentError,
        "returned tuple",
    ),
    "a complex loss": (
        {"program": bare, "objective": lambda level: 1j * level.log_v.mean()},
        sy.ArgumentError,
        "returned complex64",
    ),
    "complex parameters": (
        {"models": {"a": jnp.zeros(()), "b": jnp.zeros(2, complex)}},
        sy.ArgumentError,
        r"models\['b'\] is complex64.*real and imaginary parts",
    ),
    "empty data": ({"data": np.zeros((0, 2))}, sy.ArgumentError, "empty"),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_found_at_once(mistake: str, tmp_path: Path) -> None:
    wrong, error, message = WRONG[mistake]
    calls: list[Any] = []
    arguments = {"program": exact(square), "models": jnp.zeros(()), "optimizer": optax.sgd(0.1), **ARGUMENTS, **wrong}
    with pytest.raises(error, match=message):
        sy.train(**arguments, checkpoint=tmp_path / "run", callback=calls.append)
    assert not calls
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_program_itself_comes_through() -> None:
    def program(m: Any) -> Any:
        raise ZeroDivisionError("my own")

    with pytest.raises(ZeroDivisionError, match="my own"):
        sy.train(program, jnp.zeros(()), optimizer=optax.sgd(0.1), **ARGUMENTS)
