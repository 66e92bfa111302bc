"""The laws run as users run steelyard, without checks of annotations."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture(autouse=True)
def without_annotation_checks() -> Iterator[None]:
    """Enumeration calls small functions millions of times; and beartype draws from `random`, where Hypothesis may not.

    The other tests check the annotations of the same functions.
    """
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
