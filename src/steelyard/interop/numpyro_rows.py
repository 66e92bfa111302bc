"""Variables whose rows depend on each other, as the steps of a loop inside of a program do."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.distributions.coordinates import located
from steelyard.distributions.distribution import is_reparameterized
from steelyard.distributions.scaled import RandomBits
from steelyard.language.state import State
from steelyard.maps import select
from steelyard.types import stop_gradient


def sample_row(s: State, address: str, distribution: Any, row: Any, draw: Callable[[Any, Any], Any]) -> Any:
    """Return one row of a variable whose rows depend on each other, before `sample` records all of them together.

    Args:
        s: the state that the variable belongs to.
        address: the address of the variable.
        distribution: that of this row.
        row: the index of the row; None, if there is only one.
        draw: draws from a distribution with a key.
    """
    reused, value = s._given.present(address), None
    if reused is not True:
        bits = np.zeros(2, np.uint32) if s._present is False else s._draw(s._site + 1, address, RandomBits())
        # Where the variable is absent, its value must not depend on what was drawn.
        bits = select(s._present, bits, jnp.zeros_like(bits))
        key = jax.random.fold_in(jax.random.wrap_key_data(bits, impl="threefry2x32"), crc32(address.encode()))
        drawn = draw(distribution, key if row is None else jax.random.fold_in(key, row))
        value = stop_gradient(drawn, s._detached or not is_reparameterized(distribution))
    if reused is not False:
        given = s._given[address] if row is None else jax.tree.map(lambda x: jnp.asarray(x)[row], s._given[address])
        proposed = located(given, distribution, address, s._place).value
        value = proposed if reused is True else select(reused, proposed, value)
    return value
