"""The examples run at a tiny size, and learn."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
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


@pytest.mark.parametrize("method", ["rws", "vimco", "svi"])
def test_the_autoencoder_learns(
    method: str, vae: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = vae.main(method=method, steps=60, particles=4, batch_size=16, out=tmp_path)
    loss = np.asarray(results[method].history.loss)
    assert np.isfinite(loss).all() and not results[method].history.skipped.any()
    assert loss[-10:].mean() < loss[:10].mean() - 20.0
    assert (tmp_path / "vae.png").read_bytes().startswith(b"\x89PNG")
    rows = [line.split("│")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    log_z = {name.strip(): float(value) for name, value in rows}
    assert log_z["untrained"] + 20.0 < log_z[method] < log_z["the simulator itself"]


@pytest.mark.parametrize("arguments", [["--method", "magic"], ["--particles", "1"], ["--steps", "0"]])
def test_the_autoencoder_refuses_what_makes_no_sense(arguments: list[str], vae: ModuleType) -> None:
    app = typer.Typer()
    app.command()(vae.main)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and arguments[0] in result.output
