"""A checkpoint is of the run that made it: in another process too, and of no run whose result would differ."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import steelyard as sy
from steelyard.training.checkpoints import FORMAT, OLDER
from steelyard.training.identity import difference, digest_of_arrays, digest_of_equations
from tests.training.programs import ARGUMENTS

ROOT = Path(__file__).parents[2]
LARGE = np.zeros(3000, np.float32)
DATA = (np.arange(6, dtype=np.float32), np.ones((6, 2), np.float32))


def program(scale: float = 1.0, prior: Any = dist.Normal, constants: Any = LARGE) -> Any:
    def build(m: Any, x: Any, y: Any) -> Any:
        def model(s: sy.State) -> None:
            z = s.sample("z", prior(0.0, scale))
            s.observe("x", dist.Normal(z, 1.0), x + y.sum() + constants.sum())

        return sy.propose(model, lambda s: s.sample("z", dist.Normal(m["loc"] + m["shift"].sum(), 1.0)))

    return build


GIVEN: dict[str, Any] = {
    **ARGUMENTS,
    "program": program(),
    "models": {"loc": 0.0, "shift": jnp.zeros(2, int)},
    "objective": sy.objectives.elbo,
    "optimizer": optax.adam(0.1),
    "data": DATA,
    "steps": 8,
}


def with_one_more(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, x[:1]])


STEP = "the program, the objective or the optimizer differs"
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "learning rate": ({"optimizer": optax.adam(0.2)}, STEP),
    "an optimiser with a state of the same shapes": ({"optimizer": optax.adamw(0.1, weight_decay=0.01)}, STEP),
    "a momentum": ({"optimizer": optax.adam(0.1, b1=0.8)}, STEP),
    "objective": ({"objective": sy.objectives.iwae}, STEP),
    "a number in the program": ({"program": program(scale=1.5)}, STEP),
    "a distribution": ({"program": program(prior=dist.Laplace)}, STEP),
    "one of many constants": ({"program": program(constants=np.eye(1, 3000, 1500, np.float32)[0])}, STEP),
    "data": ({"data": (DATA[0] + 1.0, DATA[1])}, "the data differ"),
    "data in another order": ({"data": (DATA[0][::-1], DATA[1])}, "the data differ"),
    "number of rows": ({"data": tuple(map(with_one_more, DATA))}, "the data differ"),
    "start": ({"models": {"loc": 0.5, "shift": jnp.zeros(2, int)}}, "the models at the start differ"),
    "what does not learn": ({"models": {"loc": 0.0, "shift": jnp.ones(2, int)}}, "the models at the start differ"),
    "two things": ({"data": (DATA[0] + 1.0, DATA[1]), "particles": 4}, "particles was 3, now 4; the data differ"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "run"
    sy.train(**GIVEN, checkpoint=path)
    return path


@pytest.mark.parametrize("what", OTHERS)
def test_another_run_is_refused_and_what_differs_is_named(what: str, directory: Path) -> None:
    other, message = OTHERS[what]
    with pytest.raises(sy.CheckpointError, match=f"does not hold checkpoints of this run: ({message}).*left as it is"):
        sy.train(**{**GIVEN, **other}, checkpoint=directory)


def test_the_same_run_built_anew_goes_on(directory: Path) -> None:
    calls: list[Any] = []
    again = {
        "program": program(constants=LARGE.copy()),
        "optimizer": optax.adam(0.1),
        "data": tuple(map(np.copy, DATA)),
    }
    sy.train(**{**GIVEN, **again}, checkpoint=directory, callback=calls.append)
    assert not calls


def test_an_older_format_is_refused(directory: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(directory, tmp_path / "run")
    for path in copy.glob("*/identity/metadata"):
        path.write_text(path.read_text().replace(FORMAT, OLDER))
    with pytest.raises(sy.CheckpointError, match="earlier version of steelyard.*Choose another directory"):
        sy.train(**GIVEN, checkpoint=copy)


@pytest.mark.long
def test_runs_of_all_kinds_of_models_go_on_in_another_process(tmp_path: Path) -> None:
    """Where hashes of strings, and with them the order of sets, are others."""

    def run(folder: str, steps: int, seed: int) -> dict[str, Any]:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        command = [sys.executable, "-m", "tests.training.resumed", str(tmp_path / folder), str(steps)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    run("broken", 2, 1)
    resumed, whole = run("broken", 4, 2), run("whole", 4, 3)
    assert {first for first, _ in whole.values()} == {4} == {first for first, _ in resumed.values()}
    assert resumed == whole


def test_what_else_may_have_changed_the_equations_is_named() -> None:
    now = {"step": "a", "versions": {"jax": "2.0", "optax": "1.0"}}
    before = {"step": "b", "versions": {"jax": "1.0", "optax": "1.0"}}
    assert difference(before, now) == f"{STEP}, or what it computes with (jax was 1.0, now 2.0)"
    assert difference({**before, "step": "a"}, now) == ""
    assert difference({}, {**now, "arrays": ["x"], "key": [0]}).startswith("key was None, now [0]; the parameters")


def equations(f: Any, *args: Any) -> str:
    return digest_of_equations(jax.make_jaxpr(f)(*args))


def test_equations_are_told_apart_by_what_they_compute() -> None:
    x, large = jnp.ones(3), np.arange(1000.0)

    def called(c: Any) -> Any:
        return jax.jit(lambda x: x * c.sum())

    def looped(c: Any) -> Any:
        return lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + c.sum(), x)

    for make in (called, looped, lambda c: lambda x: jax.vmap(lambda y: y + c.sum())(x)):
        same, other = make(large.copy()), make(large + np.eye(1, 1000, 999)[0])
        assert equations(make(large), x) == equations(same, x) != equations(other, x)
    assert equations(lambda x: x * 2.0, x) != equations(lambda x: x * 3.0, x)
    assert equations(lambda x, y: x - y, x, x) != equations(lambda x, y: y - x, x, x)
    assert equations(lambda x: x, x) != equations(lambda x: x, x[:2])
    # The order in which things are computed makes no difference, nor does what is not used.
    both = [lambda x: (jnp.sin(x), jnp.cos(x)), lambda x: (jnp.cos(x), jnp.sin(x), jnp.tan(x))[1::-1]]
    assert equations(both[0], x) == equations(both[1], x)


def test_arrays_are_told_apart_by_their_types_shapes_names_and_bytes() -> None:
    zeros = np.zeros(4, np.float32)
    trees = [
        zeros,
        zeros.astype(np.int32),
        zeros.reshape(2, 2),
        {"a": zeros},
        {"b": zeros},
        zeros[:0],
        -zeros,
        zeros + 1,
    ]
    trees += [jnp.zeros(4, jnp.bfloat16), jax.random.key(0), jax.random.key(1), np.float32(0), [zeros, zeros[:0]]]
    assert len({digest_of_arrays(tree) for tree in trees}) == len(trees)
    grid = np.arange(6.0).reshape(2, 3)
    assert digest_of_arrays(grid.T) == digest_of_arrays(grid.T.copy()) == digest_of_arrays(np.asfortranarray(grid.T))
