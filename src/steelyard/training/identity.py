"""What tells one training run from another: all that its result depends on, as far as it can be told."""

import hashlib
import re
from collections.abc import Mapping, Set
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Equations that only call others: what they compute is what these compute.
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint"}
PACKAGES = ("jax", "numpyro", "optax", "equinox")
WORDS = {
    "arrays": "the parameters or the optimiser have other shapes",
    "models": "the models at the start differ",
    "data": "the data differ",
    "step": "the program, the objective or the optimizer differs",
}
# Where an object is in memory: another place in every process.
PLACE = re.compile(r" at 0x[0-9a-fA-F]+|0x[0-9a-fA-F]{6,}")


def identity(
    step: ClosedJaxpr, learner: Any, models: Any, data: Any, *, key: Any, particles: int, batch_size: int | str | None
) -> dict[str, Any]:
    """Return what identifies a run, as JSON; it is the same in every process.

    Args:
        step: the equations of one step. Program, objective and optimiser are in them, with all their constants.
        learner: all that a step changes, before the first one.
        models: the models before the first step.
        data: the data.
        key: the key.
        particles: how many particles for each datum.
        batch_size: how many data in a step, and how they are chosen.
    """
    return {
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "particles": particles,
        "batch_size": batch_size,
        "arrays": described(learner),
        "data": digest_of_arrays(data),
        "models": digest_of_arrays(models),
        "step": digest_of_equations(step),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def described(tree: Any) -> list[str]:
    """Return the name, the type and the shape of each array of a tree."""
    arrays = jax.tree.leaves_with_path(tree)
    return [f"{jax.tree_util.keystr(path)} {x.dtype}{list(x.shape)}" for path, x in arrays]


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words how two identities differ; the empty string, if they are the same run."""
    differs = [name for name in now if name != "versions" and before.get(name) != now[name]]
    found = [f"{name} was {before.get(name)}, now {now[name]}" for name in differs if name not in WORDS]
    if "arrays" in differs:
        old = before.get("arrays") or []
        first = next(
            (f"{a}, now {b}" for a, b in zip(old, now["arrays"], strict=False) if a != b), f"{len(old)} arrays"
        )
        found.append(f"{WORDS['arrays']} ({first})")
    elif "models" in differs:
        found.append(WORDS["models"])
    if "data" in differs:
        found.append(WORDS["data"])
    # What is named so far is in the equations as well.
    if "step" in differs and not found:
        versions = [(name, old, now["versions"].get(name)) for name, old in (before.get("versions") or {}).items()]
        changed = [f"{name} was {old}, now {new}" for name, old, new in versions if old != new]
        found.append(WORDS["step"] + (f", or what it computes with ({'; '.join(changed)})" if changed else ""))
    return "; ".join(found)


def digest_of_arrays(tree: Any) -> str:
    """Return a hash of the arrays of a tree: their names, types, shapes and bytes."""
    digest = hashlib.blake2b(digest_size=20)
    for path, x in jax.tree.leaves_with_path(tree):
        if isinstance(x, jax.Array | np.ndarray | np.generic):
            _add_array(digest, jax.tree_util.keystr(path), x)
    return digest.hexdigest()


def _add_array(digest: Any, name: str, x: Any) -> None:
    digest.update(f"{name} {x.dtype}{list(x.shape)};".encode())
    array = np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
    # The bytes where they are, whatever their type: a copy would double the memory that large data take.
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def digest_of_equations(closed: ClosedJaxpr) -> str:
    """Return a hash of what equations compute, constants included, which is the same in every process.

    The text of a jaxpr is not: it holds places in memory, leaves out large constants, and its order may follow that of
    a Python set, as the parameters of NumPyro's distributions do. So each result is named by the operation and by the
    names of what it is computed from, whatever the order.
    """
    return _text(closed)


def _results(jaxpr: Jaxpr, consts: list[str], inputs: list[str], effects: list[str]) -> list[str]:
    """Return names for what equations compute, given names of what goes in; what else they do is added to `effects`."""
    names: dict[Any, str] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))

    def name(v: Any) -> str:
        return f"{_text(v.val)} {v.aval}" if isinstance(v, Literal) else names[v]

    for equation in jaxpr.eqns:
        given = list(map(name, equation.invars))
        inner = [x for x in equation.params.values() if isinstance(x, ClosedJaxpr | Jaxpr)]
        if equation.primitive.name in CALLS and len(inner) == 1:
            results = _results(*_parts(inner[0]), given, effects)
        else:
            whole = _hash(equation.primitive.name, _text(equation.params), *given)
            results = [f"{whole} {i}" for i in range(len(equation.outvars))]
            effects += [whole] if equation.effects else []
        names |= dict(zip(equation.outvars, results, strict=True))
    return list(map(name, jaxpr.outvars))


def _parts(jaxpr: Jaxpr | ClosedJaxpr) -> tuple[Jaxpr, list[str]]:
    return (jaxpr.jaxpr, list(map(_text, jaxpr.consts))) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, [])


def _text(x: Any) -> str:
    """Return a text for a parameter or a constant of an equation."""
    match x:
        case Jaxpr() | ClosedJaxpr():
            jaxpr, consts = _parts(x)
            inputs, effects = [f"input {i} {v.aval}" for i, v in enumerate(jaxpr.invars)], []
            return _hash(*_results(jaxpr, consts, inputs, effects), "and", *effects)
        case jax.Array() | np.ndarray() | np.generic():
            return digest_of_arrays(x)
        case Mapping():
            return str(sorted((str(key), _text(value)) for key, value in x.items()))
        case Set():
            return str(sorted(map(_text, x)))
        case tuple() | list():
            return str([_text(value) for value in x])
        case partial():
            return _text((x.func, x.args, x.keywords))
    if callable(x) and hasattr(x, "__qualname__"):
        return f"{x.__module__}.{x.__qualname__}"
    return PLACE.sub("", repr(x))


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=20).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
