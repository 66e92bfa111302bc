"""What a filter knew at each step: expectations, quantiles and predictive densities with the weights of that step."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.arguments import check_count, check_key
from steelyard.errors import ArgumentError, WeightError
from steelyard.estimates.ancestry import Kept
from steelyard.estimates.expectation import expectation
from steelyard.estimates.quantiles import quantiles
from steelyard.estimates.smoothing import backward
from steelyard.maps import Map, select
from steelyard.particles import weights
from steelyard.types import Count, Key, is_traced

KEEP = "scan(step, q, xs, keep=['z'])"


class Filtered:
    """The methods of an evaluation that tell what a filter knew at each of its steps."""

    def filtered(self: Any, h: Callable[[Map[Any]], Any]) -> Any:
        """Estimate the expectation of h at each step of a filter, given the data up to that step.

            E[h(z_t) | y_1:t] ~ sum_l w_t^l h(z_t^l) / sum_l w_t^l

        The weights are those at the end of step t. A step that begins with its resample, `move(f, resample(q))`, has
        not resampled them yet, with or without a threshold. A step that ends with a resample leaves equal weights; its
        estimate is right too, but has more noise. Self-normalised, with a bias that shrinks as 1/L.

        Scans that go on where the one before ended, and keep the same variables, count as one filter. A filter that is
        the second part of a compose does not know the weights of the first.

        Args:
            h: a function of one particle's variables at one step, those of `scan(..., keep=[...])`; it returns an array
                or a tree of arrays.

        Returns:
            The estimates, with the step as the first axis. The first is of the particles before the first step.

        Raises:
            ArgumentError: no scan was asked to keep variables, or the weights of its steps are not known.

        Example:
            >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
            >>> def first(s): return s.sample("z", dist.Normal(0.0, 1.0))
            >>> def step(q, y):
            ...     def transition(s, z):
            ...         z = s.sample("z", dist.Normal(0.9 * z, 1.0))
            ...         s.observe("y", dist.Normal(z, 0.5), y)
            ...         return z
            ...     return sy.move(transition, sy.resample(q, threshold=0.5))
            >>> q = sy.scan(step, first, jnp.array([0.3, 1.0, -0.5]), keep=["z"])
            >>> out = sy.evaluate(q, jax.random.key(0), particles=1000)
            >>> out.filtered(lambda t: t["z"]).shape
            (4,)
        """
        values, log_weight = steps_of(self.histories, "filtered")
        if not isinstance(log_weight, np.ndarray):
            return expectation(h, Map(values), log_weight, ())
        each = [expectation(h, Map({a: x[t] for a, x in values.items()}), w, ()) for t, w in enumerate(log_weight)]
        return jax.tree.map(lambda *xs: np.stack(xs), *each)

    def filtered_quantiles(self: Any, h: Callable[[Map[Any]], Any], probabilities: Sequence[float] | Any) -> Any:
        """Estimate quantiles of h at each step of a filter, given the data up to that step.

        The quantile of p is the smallest value such that it and the values below it have p of all weight. The weights
        are those of `filtered`.

        Args:
            h: a function of one particle's variables at one step, which returns an array or a tree of arrays.
            probabilities: numbers from 0 to 1.

        Returns:
            The estimates, whose first axis is the probability and whose second is the step, as for `filtered`.

        Raises:
            ArgumentError: probabilities are no numbers from 0 to 1; or as for `filtered`.

        Example:
            >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
            >>> def first(s): return s.sample("z", dist.Normal(0.0, 1.0))
            >>> def walk(s, z): return s.sample("z", dist.Normal(z, 1.0))
            >>> q = sy.scan(lambda q, x: sy.move(walk, q), first, None, length=3, keep=["z"])
            >>> out = sy.evaluate(q, jax.random.key(0), particles=1000)
            >>> low, high = out.filtered_quantiles(lambda t: t["z"], [0.05, 0.95])
            >>> low.shape, bool((low < high).all())
            ((4,), True)
        """
        probabilities = np.asarray(probabilities, float)
        if probabilities.ndim != 1 or not np.all((probabilities >= 0) & (probabilities <= 1)):
            raise ArgumentError(
                f"filtered_quantiles: probabilities are a list of numbers from 0 to 1, got {probabilities}."
            )
        values, log_weight = steps_of(self.histories, "filtered_quantiles")
        if isinstance(log_weight, np.ndarray):
            each = [
                jax.tree.map(lambda x: quantiles(x, w, probabilities), _of_all(h, values, t, len(w)))  # noqa: B023
                for t, w in enumerate(log_weight)
            ]
            return jax.tree.map(lambda *xs: np.stack(xs, axis=1), *each)

        def at_step(values: dict[str, Any], w: Any) -> Any:
            return jax.tree.map(
                lambda x: quantiles(x, w, jnp.asarray(probabilities, w.dtype)), jax.vmap(h)(Map(values))
            )

        of_steps, batch = jax.vmap(at_step), log_weight.ndim - 2
        for _ in range(batch):
            of_steps = jax.vmap(of_steps)
        return jax.tree.map(lambda x: jnp.moveaxis(x, batch + 1, 0), of_steps(values, log_weight))

    def log_predictive(self: Any) -> Any:
        """Estimate the log density of each step's data, given the data before it.

            log p(y_t | y_1:t-1) ~ log sum_l w_t^l - log sum_l w_{t-1}^l

        Their sum is the estimate of log Z after the last step. The log of an unbiased estimate is not unbiased.

        Returns:
            The log densities, with the step as the first axis. The first is of what the filter begins with.

        Raises:
            ArgumentError: as for `filtered`.

        Example:
            >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
            >>> def first(s): s.factor("y", -0.5); return s.sample("z", dist.Normal(0.0, 1.0))
            >>> def step(q, y):
            ...     def transition(s, z): s.factor("y", y); return s.sample("z", dist.Normal(z, 1.0))
            ...     return sy.move(transition, sy.resample(q))
            >>> q = sy.scan(step, first, jnp.array([0.25, 2.0]), keep=[])
            >>> sy.evaluate(q, jax.random.key(0), particles=10).log_predictive()
            Array([-0.5 ,  0.25,  2.  ], dtype=float32)
        """
        _, log_weight = steps_of(self.histories, "log_predictive")
        xp = log_weight.__array_namespace__()
        largest = weights.largest(log_weight)[..., 0]
        # Not differences of log Z: what all particles share may be large, and cancels first.
        rest = weights.log_mean(weights.relative(log_weight))
        first = weights.log_mean(log_weight[..., :1, :])
        with np.errstate(invalid="ignore"):
            later = largest[..., 1:] - largest[..., :-1] + (rest[..., 1:] - rest[..., :-1])
        return xp.concatenate([first, later], axis=-1)

    def smoothed(self: Any, key: Key, draws: Count, *, bound: Any = None) -> dict[str, Any]:
        """Draw whole trajectories of a filter given all data, by backward sampling.

            i_T ~ w_T,    i_t ~ w_t^i p(z_{t+1}, y_{t+1} | z_t^i)    for t = T-1, ..., 0

        The genealogies of `trajectories` are draws too, but early steps of all of them descend from few particles.
        Here every step may take any particle that there was. The density of the transition is the one of the program:
        that of `f` in `move(f, q)` and in `move(propose(f, guide), q)`. Draws are independent of each other given the
        particles, and equally weighted; their law tends to that of the states given all data as particles grow in
        number, with a bias that shrinks as 1/L.

        It costs draws x steps x particles densities. With a bound particles are proposed by their weights and accepted
        by their densities, which has the same law, and costs fewer the more of them are accepted. Draws that take long
        are drawn as without a bound. Under `jit`, what cannot be drawn is NaN.

        Args:
            key: a key of `jax.random.key`.
            draws: how many.
            bound: the largest log density that a transition has anywhere, such as
                `dist.Normal(0.0, 0.4).log_prob(0.0)`; or one for each transition. Only terms that depend on the step
                before count: of what is observed usually none.

        Returns:
            For each address an array with axes draw and step, the initial program's value first.

        Raises:
            ArgumentError: `evaluate` was not asked for it, `evaluate(..., smoothing=True)`; it is a batch; or a density
                is above the bound.
            WeightError: no particle of a step can have led to the next one, or a density is NaN.

        References:
            Godsill, Doucet and West (2004); Douc, Garivier, Moulines and Olsson (2011).

        Example:
            >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, steelyard as sy
            >>> def first(s): return s.sample("z", dist.Normal(0.0, 1.0))
            >>> def step(q, y):
            ...     def transition(s, z):
            ...         z = s.sample("z", dist.Normal(0.9 * z, 1.0))
            ...         s.observe("y", dist.Normal(z, 0.5), y)
            ...         return z
            ...     return sy.move(transition, sy.resample(q))
            >>> q = sy.scan(step, first, jnp.array([0.3, 1.0, -0.5]), keep=["z"])
            >>> out = sy.evaluate(q, jax.random.key(0), particles=100, smoothing=True)
            >>> out.smoothed(jax.random.key(1), 20)["z"].shape
            (20, 4)
        """
        if self.record.transitions is None:
            raise ArgumentError(
                "smoothed: the transitions of the filter were not kept. Ask for them: evaluate(..., smoothing=True)."
            )
        if self.log_weight.ndim != 1:
            raise ArgumentError("smoothed takes one population; use jax.vmap over a batch of them.")
        steps_of(self.histories, "smoothed")
        key, draws = check_key(key, "smoothed"), check_count(draws, "smoothed", "draws")
        length = self.histories[-1].log_weight.shape[0]
        if bound is not None and np.shape(bound) not in ((), (length,)):
            raise ArgumentError(
                f"smoothed: bound is one number, or one for each of {length} transitions; got shape {np.shape(bound)}."
            )
        bounds = None if bound is None else jnp.broadcast_to(jnp.asarray(bound, float), (length,))
        found, possible, bounded = backward(self.record.transitions, self.histories[-1], key, bounds, draws)
        if is_traced(possible):
            fits = possible & bounded
            return jax.tree.map(lambda x: select(fits, x, jnp.nan) if _can_be_nan(x) else x, found)
        if not np.all(bounded):
            raise ArgumentError(
                f"smoothed: a transition has a larger log density than bound={bound}, so that draws would not be from "
                f"the right distribution. Give a larger bound, or leave it out."
            )
        if not np.all(possible):
            raise WeightError(
                f"smoothed: {int(np.sum(~possible))} of {draws} draws reach a step that no particle of the step before "
                f"can have led to, or whose density is NaN."
            )
        return found


def _can_be_nan(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def steps_of(histories: tuple[Kept, ...], place: str) -> tuple[dict[str, Any], Any]:
    """Return variables and log weights at each step, with the step before the particle as the first axes of one run.

    Raises:
        ArgumentError: nothing was kept, or the weights are not all that the particles had.
    """
    if not histories:
        raise ArgumentError(f"{place}: no scan kept what its steps had. Name the variables to keep: {KEEP}.")
    last = histories[-1]
    if not last.complete:
        raise ArgumentError(
            f"{place}: the scan ran after another program, whose weights its steps do not have. Let the scan begin "
            f"with that program: scan(step, compose(...), xs, keep=[...]) in place of compose(scan(...), q)."
        )
    # A scan over a scan begins where that one ended.
    count = next((n for n, k in enumerate(histories[::-1]) if k.first.keys() != last.first.keys()), len(histories))
    joined = histories[len(histories) - count :]
    xp, batch = last.log_weight.__array_namespace__(), last.log_weight.ndim - 2

    def join(first: Any, *later: Any) -> Any:
        return xp.concatenate([xp.expand_dims(first, batch), *later], axis=batch)

    log_weight = join(joined[0].first_log_weight, *(k.log_weight for k in joined))
    return jax.tree.map(join, joined[0].first, *(k.values for k in joined)), log_weight


def _of_all(h: Callable[[Map[Any]], Any], values: dict[str, Any], t: int, particles: int) -> Any:
    """Return h of every particle at one step, where they are NumPy's."""
    now = Map({a: x[t] for a, x in values.items()})
    each = [h(now.of_particle(l)) for l in range(particles)]
    return jax.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *each)
