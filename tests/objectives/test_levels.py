"""Evaluation in context: what an objective is given, and what becomes of what it returns."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard import objectives
from tests.objectives.estimates import Objective

KEY = jax.random.key(3)
START = 0.3


def start(s: sy.State) -> Any:
    return s.sample("x", dist.Normal(START, 1.2))


def tilted(slope: float) -> Any:
    def program(s: sy.State) -> Any:
        x = s.sample("x", dist.Normal(0.0, 1.0))
        s.factor("tilt", slope * x)
        return x

    return program


def forward(s: sy.State, x: Any) -> Any:
    return s.sample("x", dist.Normal(0.6 * x, 0.9))


def reverse(s: sy.State, x: Any) -> Any:
    return s.sample("x", dist.Normal(0.2 - 0.4 * x, 1.1))


def level(p: Any, q: Any, objective: Objective | None = None) -> Any:
    return sy.propose(sy.extend(p, sy.prev(reverse)), sy.move(forward, q), objective=objective)


def three_levels(first: Any = None, second: Any = None, third: Any = None) -> Any:
    q = sy.propose(tilted(0.5), start, objective=first)
    return level(tilted(1.0), sy.resample(level(tilted(-0.5), sy.detach(q), second)), third)


SEQUENCE = sy.compose(
    sy.propose(lambda s, x: s.sample("y", dist.Normal(x, 1.0)), lambda s, x: s.sample("y", dist.Normal(0.0, 1.5))),
    sy.propose(tilted(0.5), start),
)
PROGRAMS = {
    "nested": three_levels(),
    "composed": SEQUENCE,
    "resampled after compose": sy.resample(SEQUENCE, method="multinomial"),
    "detached": sy.detach(three_levels()),
    "renamed": sy.rename(three_levels(), {"x": "z"}),
}
OBJECTIVES: list[Objective] = [
    objectives.elbo,
    objectives.iwae,
    objectives.vimco,
    objectives.rws,
    objectives.reverse_kl,
    objectives.forward_kl,
    objectives.avo,
    objectives.apg,
]


def assert_same_particles(one: sy.Evaluation, other: sy.Evaluation) -> None:
    for a, b in ((one.trace, other.trace), (one.log_density, other.log_density)):
        assert set(a) == set(b)
        for address in a:
            np.testing.assert_array_equal(a[address], b[address], err_msg=address)
    np.testing.assert_array_equal(one.log_weight, other.log_weight)


def all_objectives(level: sy.Level) -> Any:
    """Every objective at once, each in a proportion of its own."""
    losses = [jnp.asarray(objective(level)) for objective in OBJECTIVES]
    return sum(number * loss for number, loss in enumerate(losses, start=1))


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_an_objective_changes_neither_samples_nor_weights_and_losses_add_up(name: str) -> None:
    q = PROGRAMS[name]
    without = sy.evaluate(q, KEY, particles=7)
    out = sy.evaluate(q, KEY, particles=7, objective=all_objectives)
    assert_same_particles(without, out)
    assert without.loss == 0 and all(summary.loss == 0 for summary in without.levels)
    losses = [summary.loss for summary in out.levels if summary.label.startswith("propose")]
    assert len(losses) == (2 if "compose" in name else 3)
    for loss in losses:
        assert np.isfinite(loss).all() and np.all(loss != 0)
    np.testing.assert_allclose(out.loss, sum(losses), rtol=1e-5)
    assert all(summary.loss == 0 for summary in out.levels if summary.label == "resample")


def test_both_engines_compute_the_same_losses() -> None:
    vectorized = sy.evaluate(three_levels(), KEY, particles=4, objective=all_objectives)
    universal = sy.evaluate(three_levels(), KEY, particles=4, objective=all_objectives, engine="universal")
    np.testing.assert_allclose(universal.loss, vectorized.loss, rtol=1e-4)


def constant(value: float) -> Objective:
    return lambda level: jnp.asarray(value)


def test_a_propose_may_carry_its_own_objective() -> None:
    out = sy.evaluate(three_levels(None, constant(10.0), None), KEY, particles=5, objective=constant(1.0))
    assert [float(summary.loss) for summary in out.levels] == [1.0, 10.0, 0.0, 1.0]
    assert float(out.loss) == 12.0
    out = sy.evaluate(three_levels(constant(1.0), constant(2.0), constant(4.0)), KEY, particles=5)
    assert float(out.loss) == 7.0


def test_an_objective_is_a_plain_function_of_the_level() -> None:
    """The paper's l(rho_q, rho_p, w, v), for a level whose kernel can be told from what came in."""
    seen: list[dict[str, np.ndarray]] = []

    def user_defined(level: sy.Level) -> Any:
        assert level.kernel is not None
        kernel = {address: level.proposal.log_density[address] for address in level.kernel.log_density}
        came_in = {a: rho for a, rho in level.proposal.log_density.items() if a not in kernel}
        assert set(kernel) == {"x"}
        assert set(came_in) == {sy.previous("x"), "tilt"}
        np.testing.assert_array_equal(kernel["x"], level.kernel.log_density["x"])
        seen.append(
            {
                "x": level.proposal.trace["x"],
                "before": level.proposal.trace[sy.previous("x")],
                "forward": kernel["x"],
                "incoming": sum(came_in.values()),
                "reverse": level.target.log_density[sy.previous("x")],
                "after": sum(level.marginal.log_density.values()),
                "w": level.log_w,
                "v": level.log_v,
                "wv": level.log_weight,
            }
        )
        return jnp.var(level.log_v)

    q = level(tilted(1.0), sy.detach(sy.propose(tilted(-0.5), start)), user_defined)
    # The universal engine works on values that can be looked at.
    out = sy.evaluate(q, KEY, particles=6, engine="universal")
    (found,) = seen
    x, before = np.asarray(found["x"], float), np.asarray(found["before"], float)
    normal = lambda x, mean, scale: np.asarray(dist.Normal(mean, scale).log_prob(x))  # noqa: E731
    expected = {
        "forward": normal(x, 0.6 * before, 0.9),
        "incoming": normal(before, 0.0, 1.0) - 0.5 * before,
        "reverse": normal(before, 0.2 - 0.4 * x, 1.1),
        "after": normal(x, 0.0, 1.0) + x,
        "w": normal(before, 0.0, 1.0) - 0.5 * before - normal(before, START, 1.2),
    }
    expected["v"] = expected["after"] + expected["reverse"] - expected["incoming"] - expected["forward"]
    expected["wv"] = expected["w"] + expected["v"]
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(out.loss, np.var(expected["v"]), rtol=1e-4)


@pytest.mark.parametrize(
    ("q", "addresses"),
    [
        (start, {"x"}),
        (sy.rename(start, {"x": "z"}), {"z"}),
        (sy.compose(lambda s, x: s.sample("y", dist.Normal(x, 1.0)), start), {"y"}),
        (sy.rename(sy.compose(lambda s, x: s.sample("y", dist.Normal(x, 1.0)), start), {"y": "z"}), {"z"}),
        (sy.move(forward, start), {"x"}),
        (sy.move(forward, sy.resample(sy.propose(tilted(0.5), start))), {"x"}),
        (sy.propose(tilted(0.5), start), None),
        (sy.resample(start), None),
        (sy.detach(sy.move(forward, start)), None),
    ],
)
def test_the_kernel_is_the_program_that_ran_last(q: Any, addresses: set[str] | None) -> None:
    kernels: list[sy.Evaluation | None] = []

    def objective(level: sy.Level) -> Any:
        kernels.extend([level.kernel, level.fixed.kernel])
        return 0.0

    sy.evaluate(sy.propose(lambda s: s.sample("w", dist.Normal(0.0, 1.0)), q, objective=objective), KEY, particles=2)
    assert [None if k is None else set(k.log_density) for k in kernels[-2:]] == [addresses] * 2
