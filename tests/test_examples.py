"""The examples run at a tiny size, and learn."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import numpyro
import pytest
import typer
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for their own module.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def vae() -> ModuleType:
    return example("vae")


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "particles", "steps", "within"), [("GMM40", 2000, 2, 0.1), ("many-well", 1000, 5, 0.6)]
)
def test_hard_targets(name: str, particles: int, steps: int, within: float) -> None:
    """The funnel, and the many-well within 0.3, take more particles and steps: `python examples/hard_targets.py`."""
    module = example("hard_targets")
    case = module.CASES[name]
    out = module.run(case, jax.random.key(0), particles, steps=steps, ess=0.9)
    assert abs(float(out.log_z) - case.exact) < within
    if name == "GMM40":
        assert module.modes_found(out) == 40


@pytest.mark.long
def test_eight_schools_agree_with_nuts() -> None:
    """Within four standard errors, of as many independent draws as the effective sample sizes tell."""
    module = example("eight_schools")
    reference = module.nuts(jax.random.key(0), 4000)
    for model in (module.centred, module.not_centred):
        out = module.tempered(model, jax.random.key(1), 1000, steps=5)
        for name, x in module.quantities(out.trace).items():
            mean, sd = module.moments(x, out.normalized_weights)
            theirs = reference[name]
            size = 1 / (1 / float(out.ess) + 1 / numpyro.diagnostics.effective_sample_size(np.asarray(theirs)[None]))
            assert abs(mean - theirs.mean()) < 4 * theirs.std() / size**0.5, name
            assert abs(sd - theirs.std()) < 4 * theirs.std() / (size / 2) ** 0.5, name
