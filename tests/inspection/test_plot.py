"""Pictures: what is drawn is read back from the axes."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib.figure import Figure

import steelyard as sy

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def closed() -> Any:
    settings = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == settings


def population(log_weight: Any, **trace: Any) -> sy.Evaluation:
    """Particles that are known."""
    out = sy.evaluate(lambda s: s.factor("f", 0.5), KEY, particles=len(log_weight))
    return replace(out, trace=replace(out.trace, values_at=trace), log_weight=jnp.asarray(log_weight))


def bars(ax: Any) -> dict[float, float]:
    return {round(p.get_x() + p.get_width() / 2, 6): p.get_height() for p in ax.patches if p.get_height() > 0}


def test_a_discrete_variable_is_bars_of_its_weights() -> None:
    out = population(np.log([1.0, 2.0, 3.0, 4.0]), k=jnp.array([5, 7, 5, -1]))
    (ax,) = sy.plot.particles(out)
    assert bars(ax) == pytest.approx({-1.0: 0.4, 5.0: 0.4, 7.0: 0.2})
    (ax,) = sy.plot.particles(population(np.zeros(4), b=jnp.array([True, False, True, True])))
    assert bars(ax) == pytest.approx({0.0: 0.25, 1.0: 0.75})


def test_a_histogram_has_the_weights_and_area_one() -> None:
    z = jnp.array([0.0, 1.0, 1.0, 4.0, 1e30])
    out = population([0.0, np.log(2.0), 0.0, np.log(4.0), -np.inf], z=z)
    (ax,) = sy.plot.particles(out, "z")
    areas = {round(p.get_x(), 3): p.get_height() * p.get_width() for p in ax.patches if p.get_height() > 0}
    # The particle without weight does not stretch the axis.
    assert areas == pytest.approx({0.0: 1 / 8, 1.0: 3 / 8, 3.9: 4 / 8})


def test_a_variable_that_some_lack_is_drawn_for_the_others() -> None:
    out = population(np.log([1.0, 2.0, 3.0, 4.0]), k=jnp.array([1, 2, 3, 1]))
    out = replace(out, trace=replace(out.trace, masks={"k": jnp.array([True, True, True, False])}))
    (ax,) = sy.plot.particles(out)
    assert bars(ax) == pytest.approx({1.0: 1 / 6, 2.0: 2 / 6, 3.0: 3 / 6})
    assert ax.get_title() == "present: 60% of the weight"
    nobody = replace(out, trace=replace(out.trace, masks={"k": jnp.zeros(4, bool)}))
    assert sy.plot.particles(nobody)[0].texts[0].get_text() == "no particle"


def test_what_the_universal_engine_holds_as_objects_is_drawn_too() -> None:
    def branch(s: sy.State) -> None:
        if s.sample("flag", dist.Bernoulli(0.5)) == 1:
            s.sample("k", dist.Poisson(jnp.array([2.0, 9.0])).to_event(1))

    out = sy.evaluate(branch, KEY, particles=10, engine="universal")
    has = np.asarray(out.trace["flag"]) == 1
    assert 0 < has.sum() < 10
    _, *axes = sy.plot.particles(out)
    assert [ax.get_xlabel() for ax in axes] == ["k[0]", "k[1]"]
    values, counts = np.unique([x[1] for x in out.trace["k"][has]], return_counts=True)
    assert bars(axes[1]) == pytest.approx(dict(zip(values.tolist(), counts / has.sum(), strict=True)))


def test_vectors_have_their_first_components_and_trees_their_leaves() -> None:
    # As many components as particles: the first axis is that of particles.
    out = population(np.zeros(3), v=jnp.arange(9).reshape(3, 3), t={"a": jnp.zeros(3), "b": jnp.ones((3, 2, 2))})
    axes = sy.plot.particles(out, "v", "t", components=2)
    assert [ax.get_xlabel() for ax in axes] == ["v[0]", "v[1]", "t['a']", "t['b'][0, 0]", "t['b'][0, 1]"]
    assert set(bars(axes[1])) == {1.0, 4.0, 7.0}


def test_pairs_are_points_whose_areas_are_weights() -> None:
    out = population(np.log([1.0, 2.0, 4.0]), x=jnp.array([0.0, 1.0, 2.0]), y=jnp.array([5.0, 3.0, jnp.inf]))
    axes = sy.plot.particles(out, pairs=True)
    assert axes.shape == (2, 2) and not axes[0, 1].axison
    (points,) = axes[1, 0].collections
    np.testing.assert_allclose(points.get_offsets(), [[0.0, 5.0], [1.0, 3.0]])
    first, second = points.get_sizes()
    assert second == pytest.approx(2 * first)
    assert axes[1, 1].get_title() == "1 not finite"


@pytest.mark.parametrize(
    "values", [[3.0, 3.0, 3.0], [1e30, 1e30 * (1 + 1e-7), 1e30], [-3e38, 3e38, 0.0], [1e-40, 0.0, 1e-45], [jnp.nan] * 3]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_numbers_of_any_size_can_be_drawn(values: list[float], dtype: str) -> None:
    (ax,) = sy.plot.particles(population(np.zeros(3), z=jnp.array(values, dtype)))
    ax.figure.canvas.draw()


def test_addresses_are_text_and_no_formulas() -> None:
    out = population(
        np.zeros(2), **{"$x^_": jnp.zeros(2), "_y": jnp.zeros(2), r"\frac$": jnp.zeros(2), "a$b$c": jnp.zeros(2)}
    )
    for axes in (sy.plot.particles(out), sy.plot.particles(out, pairs=True).reshape(-1)):
        axes[0].figure.canvas.draw()


def test_given_axes_are_drawn_on_and_nothing_else_is_made() -> None:
    out = population(np.zeros(2), x=jnp.zeros(2), y=jnp.zeros(2))
    grid = Figure().subplots(2, 2)
    assert list(sy.plot.particles(out, axes=grid)) == list(grid.reshape(-1)[:2])
    assert sy.plot.particles(out, "x", axes=grid[1, 0])[0] is grid[1, 0]
    assert sy.plot.levels(scanned([1.0, 2.0]), ax=grid[0, 0]) is grid[0, 0]
    assert not plt.get_fignums()
    with pytest.raises(sy.ArgumentError, match="needs 4 axes here, and got 3"):
        sy.plot.particles(out, pairs=True, axes=list(grid.reshape(-1)[:3]))


def test_what_cannot_be_drawn_says_so() -> None:
    out = population(np.zeros(2), x=jnp.zeros(2))
    with pytest.raises(sy.AddressError, match="no variable at 'z'; there are 'x'"):
        sy.plot.particles(out, "z")
    with pytest.raises(sy.WeightError, match="1 of 2 particles have weight NaN"):
        sy.plot.particles(population([0.0, np.nan], x=jnp.zeros(2)))
    with pytest.raises(sy.ArgumentError, match="one population"):
        sy.plot.particles(replace(out, log_weight=jnp.zeros((2, 2))))
    with pytest.raises(sy.ArgumentError, match="real numbers, and 'c' holds complex64"):
        sy.plot.particles(population(np.zeros(2), c=jnp.zeros(2, complex)))
    with pytest.raises(sy.ArgumentError, match="no variable to draw"):
        sy.plot.particles(population(np.zeros(2)))
    with pytest.raises(sy.ArgumentError, match="there is none"):
        sy.plot.levels(out)
    with pytest.raises(sy.ArgumentError, match="got Evaluation"):
        sy.plot.history(out)
    with pytest.raises(sy.ArgumentError, match="outside of jit"):
        jax.jit(
            lambda: sy.plot.particles(sy.evaluate(lambda s: s.sample("z", dist.Normal(0.0, 1.0)), KEY, particles=2))
        )()


def scanned(*ess: Any) -> sy.Evaluation:
    out = population(np.zeros(4))
    made = [sy.LevelSummary(f"propose($m_{i})", 0.0 * np.asarray(x), np.asarray(x), 0.0, 4) for i, x in enumerate(ess)]
    return replace(out, record=replace(out.record, levels=tuple(made)))


def test_levels_are_points_and_scans_are_lines() -> None:
    ax = sy.plot.levels(scanned(np.array(3.0), np.array(1.5)))
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0, 3.0], [1, 1.5]])
    ax = sy.plot.levels(scanned(np.array(3.0), np.array([1.0, np.nan, 2.5])))
    alone, line = ax.lines
    np.testing.assert_allclose(alone.get_ydata(), [3.0, 3.0])
    np.testing.assert_allclose(line.get_xydata(), [[1, 1.0], [2, np.nan], [3, 2.5]])
    ax.figure.canvas.draw()
    assert ax.get_ylabel() == "ESS of 4"


def test_training_is_four_curves_and_marks() -> None:
    x = np.array([3.0, np.nan, 1.0])
    made = sy.History(loss=x, log_z=-x, ess=2 * x, gradient_norm=np.zeros(3), skipped=np.array([False, True, False]))
    axes = sy.plot.history(sy.TrainResult(None, made))
    np.testing.assert_allclose(axes[1].lines[0].get_xydata(), [[1, -3.0], [2, np.nan], [3, -1.0]])
    np.testing.assert_allclose(axes[0].lines[1].get_xdata(), [2])
    axes[0].figure.canvas.draw()
    sy.plot.history(sy.History.empty(0))[0].figure.canvas.draw()


def test_a_filter_is_a_line_and_a_band_for_each_component() -> None:
    def first(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(jnp.array([0.0, 5.0]), 1.0))

    def step(s: sy.State, z: Any) -> Any:
        z = s.sample("z", dist.Normal(z, 1.0))
        s.factor("y", z[0])
        return z

    start = sy.compose(lambda s, z: (s.factor("y", 0.0), z)[1], first)
    q = sy.scan(lambda q, _: sy.move(step, q), start, None, length=3, keep=["z"])
    out = sy.evaluate(q, KEY, particles=7, engine="universal")
    ax = sy.plot.filtered(out, lambda t: t["z"], probabilities=(0.1, 0.8), label="z")
    expected, (low, high) = out.filtered(lambda t: t["z"]), out.filtered_quantiles(lambda t: t["z"], (0.1, 0.8))
    for n, line in enumerate(ax.lines):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(4))
        np.testing.assert_allclose(line.get_ydata(), expected[:, n])
        corners = ax.collections[n].get_paths()[0].vertices
        for t in range(4):
            edges = corners[corners[:, 0] == t][:, 1]
            assert (edges.min(), edges.max()) == pytest.approx((low[t, n], high[t, n]))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["z[0]", "z[1]"]
    again = sy.plot.filtered(out, lambda t: t["z"][0], ax=ax)
    assert again is ax and len(ax.lines) == 3
    with pytest.raises(sy.ArgumentError, match="numbers and vectors"):
        sy.plot.filtered(out, lambda t: {"z": t["z"]})
    with pytest.raises(sy.ArgumentError, match="two quantiles"):
        sy.plot.filtered(out, lambda t: t["z"], probabilities=(0.5,))  # pyright: ignore
    with pytest.raises(sy.ArgumentError, match="Name the variables to keep"):
        sy.plot.filtered(population(np.zeros(2), z=jnp.zeros(2)), lambda t: t["z"])
    with pytest.raises(sy.ArgumentError, match="one population"):
        sy.plot.filtered(jax.tree.map(lambda x: jnp.asarray(x)[None], population(np.zeros(2))), lambda t: t["z"])
