"""The shapes that arrays have here, named once.

The particle axis is always the first axis of an array in an `Evaluation`, and is never inferred from a size.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

Key: TypeAlias = PRNGKeyArray
Scalar: TypeAlias = Float[Array, ""]
LogWeights: TypeAlias = Float[Array, " particles"]
Ancestors: TypeAlias = Int[Array, " particles"]
Mask: TypeAlias = bool | Bool[Array, "..."]
Value: TypeAlias = Shaped[Array, "..."] | Any

Method: TypeAlias = Literal["systematic", "stratified", "multinomial", "residual"]
EngineName: TypeAlias = Literal["vectorized", "universal"]

Function: TypeAlias = Callable[..., Any]


@runtime_checkable
class Distribution(Protocol):
    """Anything that can be sampled from and that has a log density.

    `sample` takes a key (NumPyro), or has a parameter `seed` (TFP, Distrax).
    """

    @property
    def sample(self) -> Callable[..., Any]: ...

    def log_prob(self, value: Any, /) -> Any: ...
