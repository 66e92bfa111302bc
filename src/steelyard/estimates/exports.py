"""What other libraries make of an evaluation. `interop/` says how, and imports them when they are asked for."""

from functools import singledispatch
from typing import Any

from steelyard.errors import ArgumentError
from steelyard.types import Count, Key


@singledispatch
def as_dataframe(x: Any) -> Any:
    """Return something as a table of pandas."""
    raise ArgumentError(f"to_dataframe: there is no table of {type(x).__name__}; call it on what evaluate returns.")


@singledispatch
def as_arviz(x: Any, key: Key | None, draws: Count | None) -> Any:
    """Return something in the form that ArviZ takes."""
    raise ArgumentError(f"to_arviz: nothing is known of {type(x).__name__}; call it on what evaluate returns.")


class Exported:
    """The methods of an evaluation that give it to other libraries."""

    def to_dataframe(self) -> Any:
        """Return the particles as a table of pandas: one row for each.

        There is a column for each number of each variable, `z`, `v[0]`, `v[1]`, `m[0, 2]`; the last two are
        `log_weight` and `weight`, which is normalised. A variable that some particles lack is NaN there; of a variable
        whose values have different shapes, or are no numbers, there is one column of objects, and None.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            ArgumentError: pandas is not installed; the particles are not known yet, inside of `jit`; these are several
                populations; or a variable has the name of another column.

        Example:
            >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
            >>> def model(s): s.sample("v", dist.Normal(jnp.zeros(2), 1.0))
            >>> list(sy.evaluate(model, jax.random.key(0), particles=5).to_dataframe().columns)
            ['v[0]', 'v[1]', 'log_weight', 'weight']
        """
        return as_dataframe(self)

    def to_arviz(self, key: Key | None = None, draws: Count | None = None) -> Any:
        """Return the particles in the form that ArviZ takes, as one chain.

        Without a key these are the particles as they are. They have weights, `sample_stats.log_weight`, which ArviZ
        does not look at: its summaries are those of the posterior only if all weights are the same. With a key they are
        draws from the particles in proportion to their weights, by `Evaluation.resample`, and `az.summary`,
        `az.plot_pair` and `az.loo` work as they stand. Copies of one particle are next to each other, so that ArviZ
        counts them for less than as many independent draws.

        The groups are `posterior`, with NaN where a particle lacks a variable; `log_likelihood`, after
        `evaluate(..., pointwise=True)`, each observation scaled and tempered as in the density; `observed_data`, then
        as well, with the addresses where all particles observed the same; and `sample_stats`, with `log_evidence` and,
        by level, `log_z_increment`, `ess` and `max_weight`, those of the weighted particles.

        Args:
            key: a key of `jax.random.key`, to resample with; None for the weighted particles.
            draws: how many draws, with a key; as many as there are particles, if None.

        Returns:
            An `arviz.InferenceData` with ArviZ below 1, else an `xarray.DataTree`.

        Raises:
            ArgumentError: ArviZ is not installed; `draws` without a key; the particles are not known yet, inside of
                `jit`; these are several populations; or a variable has no form that ArviZ takes.

        Example:
            >>> import jax, numpyro.distributions as dist, steelyard as sy
            >>> def model(s, x):
            ...     z = s.sample("z", dist.Normal(0.0, 1.0))
            ...     s.observe("x", dist.Normal(z, 0.5), x)
            >>> out = sy.evaluate(model, jax.random.key(0), 1.3, particles=100, pointwise=True)
            >>> data = out.to_arviz(jax.random.key(1), 50)
            >>> data.posterior["z"].shape, data.log_likelihood["x"].shape, float(data.observed_data["x"])
            ((1, 50), (1, 50), 1.2999999523162842)
        """
        return as_arviz(self, key, draws)
