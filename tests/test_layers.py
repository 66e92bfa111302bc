"""Imports point one way: a module may use those of the layers below it, and of its own."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpyro.distributions as dist

import steelyard
import steelyard as sy

SOURCE = Path(steelyard.__file__).parent
LAYERS = [
    {"ancestors", "errors", "output", "types", "version"},
    {"arguments", "arrays", "maps"},
    {"devices", "distributions"},
    {"language", "particles"},
    {"estimates"},
    {"semantics"},
    {"compiler"},
    {"engines"},
    {"objectives"},
    {"algorithms"},
    {"inspection", "interop", "training", "testing"},
    {"experiments"},
    {"cli"},
]
LEVEL = {name: number for number, names in enumerate(LAYERS) for name in names}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path != SOURCE / "__init__.py":
            yield path, ast.parse(path.read_text())


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[str]:
    """The parts of steelyard that a module imports; `steelyard` itself for the public names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "steelyard":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ("steelyard" for alias in node.names if alias.name == "steelyard")


def test_imports_point_one_way() -> None:
    wrong = []
    for path, tree in modules():
        mine = LEVEL[layer(path)]
        for name in imports(tree):
            below = mine >= LEVEL["experiments"] if name == "steelyard" else LEVEL[name] <= mine
            same_layer = name != "steelyard" and LEVEL[name] == mine and name != layer(path)
            if not below or same_layer:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not wrong


def test_experiments_use_public_names_only() -> None:
    for path, tree in modules():
        if layer(path) == "experiments":
            assert set(imports(tree)) <= {"steelyard", "experiments"}, path


def test_no_bare_asserts_and_no_private_names_of_jax() -> None:
    for path, tree in modules():
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Assert)], path
        assert "jax._src" not in path.read_text(), path


def test_modules_can_be_read_in_one_go() -> None:
    assert not [path for path, _ in modules() if len(path.read_text().splitlines()) > 300]


def test_no_import_inside_of_a_function_breaks_a_cycle() -> None:
    """The command line alone imports an experiment when it is asked for it."""
    for path, tree in modules():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = [name for f in functions for name in imports(ast.Module(body=f.body, type_ignores=[]))]
        assert not inside or layer(path) == "cli", path


def test_contributing_lists_the_modules_that_a_call_touches() -> None:
    def model(s: sy.State, x: float) -> Any:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        s.observe("x", dist.Normal(z, 0.5), x)
        return z

    def kernel(s: sy.State, z: Any) -> Any:
        return s.sample("z", dist.Normal(0.5 * z, 0.9))

    touched: set[Path] = set()

    def look(frame: Any, event: str, _: Any) -> None:
        touched.add(Path(frame.f_code.co_filename))

    q = sy.propose(sy.extend(model, sy.prev(kernel)), sy.move(kernel, sy.propose(model, model)))
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        sy.evaluate(q, jax.random.key(0), 1.3, particles=10)
    finally:
        sys.setprofile(before)
    called = {path.relative_to(SOURCE).as_posix() for path in touched if path.is_relative_to(SOURCE)}
    table = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text().split("touches these modules:")[1].split("###")[0]
    assert called == set(re.findall(r"`([\w/]+\.py)`", table))
