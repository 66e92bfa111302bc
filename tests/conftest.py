"""Strict mode: annotations are checked at run time, ranks must agree, and no window is opened."""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jaxtyping
import pytest
from numpyro.distributions import Distribution

from tests.lowering import share_context

os.environ["MPLBACKEND"] = "Agg"
# Most programs of the tests run once: a compiler that takes its time would take longer than it saves.
FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    # The emitter of single loops is twice as fast to compile as that of fusions.
    "--xla_cpu_use_fusion_emitters=false",
    # To cut a small program into parts, each with a code generator of its own, takes longer than to compile it as a whole.
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))


def _share_compiled_programs() -> None:
    """Let the processes of this run, and those that tests start, take what one of them has compiled."""
    cache = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="steelyard-tests-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    for name, value in cache.items():
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)


_share_compiled_programs()
share_context()
# Traced programs are many objects that live long: to look through all of them often takes a tenth of the time.
gc.set_threshold(50_000, 20, 100)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Not all of it. beartype cannot check the protocol of `semantics.rules`, which is not `runtime_checkable`; JAX fills the
# records of `maps` and `semantics.evaluation` with placeholders, which are not what their fields announce; and the empty
# product of probabilities in `testing.enumeration` is an int. In `engines.vectorized` there are functions inside of
# functions: they would be decorated again at every call, which takes a twentieth of the time of all tests.
CHECKED = [
    "steelyard.language.combinators",
    "steelyard.language.kernels",
    "steelyard.language.state",
    "steelyard.arrays",
    "steelyard.devices",
    "steelyard.particles",
    "steelyard.algorithms.powers",
    "steelyard.compiler.randomness",
    "steelyard.inspection.check",
    "steelyard.semantics.conditions",
    "steelyard.distributions.coordinates",
    "steelyard.distributions.densities",
    "steelyard.distributions.distribution",
    "steelyard.distributions.origins",
    "steelyard.distributions.repeated",
    "steelyard.distributions.scaled",
    "steelyard.distributions.supports",
    "steelyard.inspection.display",
    "steelyard.engines.single",
    "steelyard.engines.universal",
    "steelyard.engines.evaluate",
    "steelyard.engines.pointwise",
    "steelyard.engines.predictive",
    "steelyard.semantics.values",
    "steelyard.semantics.versions",
    "steelyard.testing.checks",
]
jaxtyping.install_import_hook(CHECKED, "beartype.beartype")


def pytest_collection_finish() -> None:
    """Leave what was imported to itself: nobody needs to look through it again for what can be freed."""
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Name the cases of distributions by their class: their own text differs from process to process."""
    return type(val).__name__ if isinstance(val, Distribution) else None


@pytest.fixture
def as_users_run_it() -> Iterator[None]:
    """Switch the annotations off, which would refuse arguments of a wrong kind before steelyard's own errors do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
