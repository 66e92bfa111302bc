"""Particles on devices of two processes."""

from pathlib import Path

import numpy as np
import pytest

from tests.hosts import processes


@pytest.mark.long
def test_every_algorithm_on_two_processes(tmp_path: Path) -> None:
    """All bits are those of one process with two devices; with one device, those of particles and ancestors are."""
    module = ["-m", "tests.engines.two_hosts", "--out"]
    with processes() as start:
        for name, started in {
            "two processes": start.pair(*module, str(tmp_path / "two processes.npz")),
            "one": [start(*module, str(tmp_path / "one.npz"), devices=1)],
            "two": [start(*module, str(tmp_path / "two.npz"), devices=2)],
        }.items():
            for process in started:
                said, _ = process.communicate(timeout=500)
                assert process.returncode == 0, f"{name}: {said}"
    assert_same(tmp_path)


def assert_same(folder: Path) -> None:
    one, two, both = (np.load(folder / f"{name}.npz") for name in ("one", "two", "two processes"))
    assert len(one.files) > 40 and sorted(one.files) == sorted(two.files) == sorted(both.files)
    for part in one.files:
        np.testing.assert_array_equal(both[part], two[part], err_msg=part)
        # The last digit of a weight may depend on how many particles a device has.
        rounded = part.endswith(("about", "log_weight"))
        tolerance = {"rtol": 1e-6, "atol": 1e-6} if rounded else {"rtol": 0, "atol": 0}
        np.testing.assert_allclose(both[part], one[part], **tolerance, err_msg=part)
