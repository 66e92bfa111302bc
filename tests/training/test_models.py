"""What may learn: Equinox modules, Flax NNX modules and states, dictionaries of arrays, a number."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import steelyard as sy
from steelyard.training.parameters import partition
from tests.training.programs import ARGUMENTS, INPUTS, exact, posterior, square

ONE = jnp.asarray(1.0)


class Network(nnx.Module):
    """A network with a counter and a stream of keys, which do not learn."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.hidden = nnx.Linear(1, 8, rngs=rngs)
        self.out = nnx.Linear(8, 1, rngs=rngs)
        self.rngs = rngs
        self.calls = nnx.Variable(jnp.asarray(3))

    def __call__(self, x: Any) -> Any:
        return self.out(jnp.tanh(self.hidden(x[None])))[0]


def learn(network: Any, models: Any) -> sy.TrainResult:
    given = {"data": INPUTS, "steps": 200, "particles": 3, "optimizer": optax.adam(0.03)}
    return sy.train(lambda m, x: posterior(network(m), x), models, **{**ARGUMENTS, **given})


def test_an_equinox_module_learns_and_keeps_what_is_not_an_array() -> None:
    module = eqx.nn.MLP("scalar", "scalar", 8, 1, activation=jnp.tanh, key=jax.random.key(1))
    before = module(ONE)
    result = learn(lambda m: m, module)
    assert type(result.models) is eqx.nn.MLP
    assert result.models.activation is module.activation
    assert abs(result.models(ONE) - 0.5) < 0.1 < abs(before - 0.5)
    assert module(ONE) == before
    assert result.history.loss[-20:].mean() < result.history.loss[0] - 0.1


def test_a_flax_module_learns_and_the_one_that_was_given_stays_as_it_was() -> None:
    module = Network()
    module.out.bias[...] = jnp.asarray([2.0])
    before = module(ONE)
    result = learn(lambda m: m, module)
    assert type(result.models) is Network
    assert type(result.models.hidden.kernel) is nnx.Param
    assert abs(result.models(ONE) - 0.5) < 0.1 < abs(before - 0.5)
    assert module(ONE) == before
    assert result.models.calls[...] == 3
    assert result.models.rngs.default.key[...] == module.rngs.default.key[...]


@pytest.mark.parametrize("only", [(), (nnx.Param, ...)], ids=["the whole state", "the parameters"])
def test_a_flax_state_learns(only: tuple[Any, ...]) -> None:
    graph, models, *others = nnx.split(Network(), *only)
    result = learn(lambda m: nnx.merge(graph, m, *others), models)
    assert type(result.models) is nnx.State
    assert abs(nnx.merge(graph, result.models, *others)(ONE) - 0.5) < 0.1


class Normalised(nnx.Module):
    """Statistics, noise, a constant and a variable of a type of its own: floating-point numbers that do not learn."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.hidden = nnx.Linear(1, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
        self.noise = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.LoRA(8, 2, 1, rngs=rngs)
        self.offset = nnx.data(jnp.asarray(0.25))
        self.scale = nnx.Variable(jnp.asarray(2.0))

    def __call__(self, x: Any) -> Any:
        return self.out(self.norm(jnp.tanh(self.hidden(x[None, None]))))[0, 0] * self.scale[...] + self.offset


# Decay would move whatever it is given, without any gradient.
DECAY = optax.adamw(0.03, weight_decay=0.1)


def changed(before: Any, after: Any) -> set[str]:
    pairs = zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
    return {jax.tree_util.keystr(path) for (path, x), y in pairs if not bool(jnp.all(x == y))}


LEARNS = [".norm.bias", ".norm.scale", ".hidden.bias", ".hidden.kernel", ".out.lora_a", ".out.lora_b"]


@pytest.mark.parametrize("form", ["module", "state", "in a dictionary", "variables in a dictionary"])
def test_of_flax_only_parameters_learn(form: str) -> None:
    module = Normalised()
    graph, state = nnx.split(module)
    forms: dict[str, tuple[Any, Any]] = {
        "module": (module, lambda m: m),
        "state": (state, lambda m: nnx.merge(graph, m)),
        "in a dictionary": ({"net": module, "free": 0.5}, lambda m: m["net"]),
        "variables in a dictionary": (
            {"a": nnx.Param(jnp.ones(())), "b": nnx.BatchStat(jnp.ones(()))},
            lambda m: lambda x: m["a"][...] * x + m["b"][...],
        ),
    }
    models, network = forms[form]
    given = {"data": INPUTS, "steps": 5, "particles": 3, "optimizer": DECAY}
    result = sy.train(lambda m, x: posterior(network(m), x), models, **{**ARGUMENTS, **given})
    found = changed(models, result.models)
    if form == "variables in a dictionary":
        assert found == {"['a'].value"}
    else:
        plain = {
            path.replace("['net']", "").replace("']['", ".").replace("['", ".").replace("']", "") for path in found
        }
        assert plain - {".free"} == {f"{name}.value" for name in LEARNS}
        assert (".free" in plain) == (form == "in a dictionary")
    assert type(result.models) is type(models)


def test_a_state_of_arrays_without_their_types_learns_as_a_dictionary_does() -> None:
    graph, state = nnx.split(nnx.Linear(1, 1, rngs=nnx.Rngs(0)))
    models = nnx.to_pure_dict(state)
    result = learn(lambda m: lambda x: x * m["kernel"][0, 0] + m["bias"][0], models)
    assert changed(models, result.models) == {"['bias']", "['kernel']"}


def test_a_flax_module_without_parameters_is_refused() -> None:
    models = {"m": nnx.BatchNorm(2, use_bias=False, use_scale=False, rngs=nnx.Rngs(0))}
    with pytest.raises(sy.ArgumentError, match=r"nothing to learn.*nnx\.Param"):
        sy.train(lambda m: exact(square)(jnp.zeros(())), models, optimizer=optax.sgd(0.1), **ARGUMENTS)


@pytest.mark.parametrize("array", [float, np.float32, jnp.float32], ids=["float", "NumPy", "JAX"])
def test_numbers_and_arrays_of_either_kind_learn(array: Any) -> None:
    models = {"a": array(1.0), "b": [jnp.zeros(2), np.ones((2, 2), np.float32)], "name": "m", "size": 7, "none": None}

    def loss(m: Any) -> Any:
        return square(m["a"]) + square(m["b"][0], m["size"]) + square(m["b"][1])

    learned = sy.train(exact(loss), models, optimizer=optax.sgd(0.3), **ARGUMENTS).models
    np.testing.assert_allclose(learned["a"], 3.0, rtol=1e-5)
    np.testing.assert_allclose(learned["b"][0], [7.0, 7.0], rtol=1e-5)
    np.testing.assert_allclose(learned["b"][1], [[3.0, 3.0], [3.0, 3.0]], rtol=1e-5)
    assert (learned["name"], learned["size"], learned["none"]) == ("m", 7, None)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_parameters_keep_their_type(dtype: Any) -> None:
    learned = sy.train(exact(square), jnp.zeros(2, dtype), optimizer=optax.adam(0.3), **ARGUMENTS).models
    assert learned.dtype == dtype
    np.testing.assert_allclose(learned.astype(jnp.float32), [3.0, 3.0], atol=0.4)


def test_a_model_without_anything_to_learn_is_refused() -> None:
    with pytest.raises(sy.ArgumentError, match="nothing to learn"):
        sy.train(lambda m: exact(square)(jnp.zeros(())), {"size": 7}, optimizer=optax.sgd(0.1), **ARGUMENTS)


PAIR = {"net": {"w": jnp.asarray([1.0, 2.0]), "b": jnp.asarray(0.5)}, "free": jnp.asarray(4.0), "n": 3}


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ({"net": True, "free": False, "n": False}, {"['net']['b']", "['net']['w']"}),
        ({"net": {"w": False, "b": np.True_}, "free": True, "n": True}, {"['net']['b']", "['free']"}),
        (lambda name, x: name.startswith("net.w") or x.ndim > 5, {"['net']['w']"}),
        (True, {"['net']['b']", "['net']['w']", "['free']"}),
    ],
)
def test_trainable_chooses_what_learns(trainable: Any, expected: set[str]) -> None:
    def loss(m: Any) -> Any:
        return square(m["net"]["w"]) + square(m["net"]["b"]) + square(m["free"])

    trainer = sy.trainer(exact(loss), PAIR | {"n": np.zeros(1, int)}, optimizer=DECAY, particles=1, trainable=trainable)
    learner, now = trainer.step(trainer.init(), jax.random.key(0))
    assert changed(PAIR | {"n": np.zeros(1, int)}, trainer.models(learner)) == expected
    assert len(jax.tree.leaves(learner.parameters)) == len(expected) and not now.skipped


def test_a_module_of_booleans_may_be_callable() -> None:
    module = eqx.nn.MLP("scalar", "scalar", 2, 1, key=jax.random.key(1))
    only = eqx.tree_at(lambda m: m.layers[1].bias, jax.tree.map(lambda _: False, module), True)
    trainer = sy.trainer(exact(lambda m: square(m(ONE))), module, optimizer=DECAY, particles=1, trainable=only)
    assert [x.shape for x in jax.tree.leaves(trainer.init().parameters)] == [(1,)]
    # Of NNX, what is no parameter does not learn, whatever is asked.
    network = Normalised()
    parameters, _ = partition(network, jax.tree.map(lambda _: True, network))
    assert len(jax.tree.leaves(parameters)) == len(LEARNS)


@pytest.mark.parametrize(
    ("trainable", "message"),
    [
        ({"net": True}, "not one of the models"),
        ({"net": 1, "free": False, "n": False}, "True or False of each array, got 1"),
        (lambda name, x: None, "True or False of each array, got None"),
        ({"net": False, "free": False, "n": True}, "chooses nothing of what could learn"),
    ],
)
def test_what_trainable_cannot_be(trainable: Any, message: str) -> None:
    with pytest.raises(sy.ArgumentError, match=message):
        partition(PAIR, trainable)


class Stateful(nnx.Module):
    """A network that still collects statistics, or still draws masks."""

    def __init__(self, layer: str) -> None:
        rngs = nnx.Rngs(0)
        self.layer = nnx.BatchNorm(1, rngs=rngs) if layer == "BatchNorm" else nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(1, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.out(self.layer(x[None, None]))[0, 0]


@pytest.mark.parametrize("layer", ["BatchNorm", "Dropout"])
@pytest.mark.parametrize("where", ["in the program", "before it", "before it, of one datum", "in a copy"])
def test_state_that_would_be_lost_is_refused(layer: str, where: str) -> None:
    module, given = Stateful(layer), {**ARGUMENTS, "optimizer": optax.sgd(0.1), "steps": 1, "data": INPUTS}
    graph, state = nnx.split(module)
    before = jax.tree.map(lambda x: x, state)

    def early(m: Any, x: Any = ONE) -> Any:
        y = m(x)
        return posterior(lambda _: y, x)

    programs: dict[str, Any] = {
        "in the program": posterior,
        "before it": early,
        "before it, of one datum": early,
        "in a copy": lambda m, x: posterior(nnx.merge(graph, m), x),
    }
    if where == "before it, of one datum":
        given |= {"data": None}
    models = state if where == "in a copy" else module
    with pytest.raises(sy.ArgumentError, match=r"changes its models.*model.eval\(\).*LayerNorm"):
        sy.train(programs[where], models, **given)
    assert changed(before, nnx.state(module)) == set()
    if where == "in the program":
        # The remedy of the message.
        module.eval()
        assert not sy.train(posterior, module, **given).history.skipped.any()


def test_the_state_of_equinox_does_not_learn() -> None:
    class Counted(eqx.Module):
        index: eqx.nn.StateIndex
        weight: Any

        def __init__(self) -> None:
            self.index, self.weight = eqx.nn.StateIndex(jnp.asarray(0.5)), jnp.asarray(2.0)

    module, state = eqx.nn.make_with_state(Counted)()
    for models, count in (((module, state), 1), (Counted(), 1)):
        assert len(jax.tree.leaves(partition(models)[0])) == count

    def spent(models: Any) -> Any:
        net, state = models
        state.set(net.index, state.get(net.index) + 1)
        return exact(square)(net.weight)

    with pytest.raises(sy.ArgumentError, match="State was replaced by a later one"):
        sy.train(spent, (module, state), optimizer=optax.sgd(0.1), **ARGUMENTS)
