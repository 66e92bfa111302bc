"""NumPyro's own densities promote ranks, and so do the models that people write for it."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def ranks_as_in_numpyro() -> Iterator[None]:
    with jax.numpy_rank_promotion("allow"):
        yield
