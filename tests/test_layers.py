"""Imports point one way: a module may use those of the layers below it, and of its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

import steelyard

SOURCE = Path(steelyard.__file__).parent
LAYERS = [
    {"errors", "output", "types"},
    {"arguments", "maps"},
    {"language", "particles"},
    {"semantics"},
    {"objectives"},
    {"algorithms"},
    {"training", "testing"},
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
