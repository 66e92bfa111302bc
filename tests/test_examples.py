"""The examples run at a tiny size, and learn."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def vae() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vae", EXAMPLES / "vae.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arguments", [["--method", "magic"], ["--particles", "1"], ["--steps", "0"]])
def test_the_autoencoder_refuses_what_makes_no_sense(arguments: list[str], vae: ModuleType) -> None:
    app = typer.Typer()
    app.command()(vae.main)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and arguments[0] in result.output
