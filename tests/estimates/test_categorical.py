"""One particle by its weight: its law, and what is never drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.estimates.categorical import choose

GRID = (np.arange(300) + 0.5) / 300
POINTS = jnp.asarray(np.stack(np.meshgrid(GRID, GRID), axis=-1).reshape(-1, 2), jnp.float32)
EDGES = jnp.asarray([[u, v] for u in (0.0, 1 - 2**-24) for v in (0.0, 1 - 2**-24)], jnp.float32)


@pytest.mark.parametrize(
    "weights", [[1.0], [0.0, 2.0], [1.0, 3.0, 0.0], [0.0, 0.0, 5.0, 1.0, 0.0, 2.0, 0.5, 0.0], [1e-30, 1e-30, 2e-30]]
)
def test_the_share_of_all_noise_is_the_weight(weights: list[float]) -> None:
    w = np.array(weights)
    found = jax.jit(jax.vmap(choose, (None, 0)))(jnp.log(jnp.asarray(w)), jnp.concatenate([POINTS, EDGES]))
    assert found.possible.all()
    share = np.bincount(found.index[: len(POINTS)], minlength=len(w)) / len(POINTS)
    np.testing.assert_allclose(share, w / w.sum(), atol=2 / 300)
    assert (w[np.asarray(found.index)] > 0).all()


def test_large_log_weights_and_none() -> None:
    both = jax.vmap(choose, (0, None))
    rows = jnp.array(
        [
            [3e6, -jnp.inf, -3e6],
            [-jnp.inf] * 3,
            [0.0, jnp.nan, 0.0],
            [0.0, jnp.inf, 0.0],
            [-3e6, -3e6 - 200, -3e6 - 100],
        ]
    )
    found = both(rows, jnp.array([0.5, 0.5]))
    assert found.possible.tolist() == [True, False, False, False, True]
    assert found.index[0] == 0 and found.index[4] == 0
