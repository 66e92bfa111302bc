"""Particles as a table of pandas."""

from typing import Any

import numpy as np

from steelyard.errors import ArgumentError
from steelyard.estimates.exports import as_dataframe
from steelyard.interop.particles import arrays, check_population
from steelyard.semantics.evaluation import Evaluation


@as_dataframe.register
def dataframe(out: Evaluation) -> Any:
    """Return one row for each particle; see `Evaluation.to_dataframe`."""
    try:
        import pandas
    except ImportError as error:
        raise ArgumentError("Evaluation.to_dataframe needs pandas: pip install 'steelyard[arviz]'.") from error
    check_population(out, "Evaluation.to_dataframe")
    columns: list[tuple[str, np.ndarray]] = []
    for name, array in arrays(out.trace, out.particles).items():
        for index in np.ndindex(array.shape[1:]):
            component = f"{name}[{', '.join(map(str, index))}]" if index else name
            columns.append((component, array[(slice(None), *index)]))
    columns.append(("log_weight", np.asarray(out.log_weight)))
    columns.append(("weight", np.asarray(out.normalized_weights)))
    names = [name for name, _ in columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ArgumentError(
            f"Evaluation.to_dataframe: two columns would have the name {twice[0]!r}. Give the variable another "
            f"address: rename(q, {{{twice[0]!r}: ...}})."
        )
    return pandas.DataFrame(dict(columns))
