"""Particles pushed through bijections."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import transforms

import steelyard as sy

MATRIX = jnp.array([[2.0, 0.3], [-0.5, 0.7]])


@dataclass(frozen=True)
class Linear:
    """(a, b) -> M (a, b) + shift, by address."""

    shift: Any = 0.4

    def forward(self, x: dict[str, Any]) -> dict[str, Any]:
        a, b = MATRIX @ jnp.stack([x["a"], x["b"]]) + self.shift
        return {"a": a, "b": b}

    def inverse(self, y: dict[str, Any]) -> dict[str, Any]:
        a, b = jnp.linalg.solve(MATRIX, jnp.stack([y["a"], y["b"]]) - self.shift)
        return {"a": a, "b": b}

    def log_det(self, x: Any) -> Any:
        return jnp.linalg.slogdet(MATRIX)[1]


def base(s: sy.State) -> Any:
    a = s.sample("a", dist.Normal(0.0, 1.0))
    b = s.sample("b", dist.Normal(0.5 * a, 2.0))
    s.observe("x", dist.Normal(a, 1.0), 0.3)
    return a, b


def _exact(a: Any, b: Any) -> Any:
    """The density of `base` at the place that is pushed to (a, b), divided by the determinant."""
    x = np.linalg.solve(MATRIX, np.array([a, b]) - 0.4)
    density = sy.log_density(base, {"a": float(x[0]), "b": float(x[1])})
    return density - np.linalg.slogdet(np.asarray(MATRIX))[1]


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_joint_bijection(engine: Any) -> None:
    q = sy.transport(Linear(), base)
    out = sy.evaluate(q, jax.random.key(0), particles=4, engine=engine)
    plain = sy.evaluate(base, jax.random.key(0), particles=4, engine=engine)
    np.testing.assert_array_equal(out.log_weight, plain.log_weight)
    for l in range(4):
        a, b = float(out.trace["a"][l]), float(out.trace["b"][l])
        pushed = Linear().forward({"a": plain.trace["a"][l], "b": plain.trace["b"][l]})
        np.testing.assert_allclose([a, b], [pushed["a"], pushed["b"]], rtol=1e-6)
        np.testing.assert_allclose(sum(x[l] for x in out.log_density.values()), _exact(a, b), rtol=1e-5)
        np.testing.assert_allclose(sy.log_density(q, {"a": a, "b": b}), _exact(a, b), rtol=1e-4)
    again = sy.evaluate(q, jax.random.key(0), particles=4, engine=engine, given=out.trace)
    np.testing.assert_allclose(again.trace["a"], out.trace["a"])
    np.testing.assert_allclose(
        again.log_weight, [_exact(*x) for x in zip(out.trace["a"], out.trace["b"], strict=True)], rtol=1e-4
    )


def test_a_transport_without_its_jacobian_misses_the_evidence() -> None:
    class Forgetful(Linear):
        def log_det(self, x: Any) -> Any:
            return 0.0

    def goal(s: sy.State) -> None:
        s.sample("a", dist.Normal(0.4, 2.2))
        s.sample("b", dist.Normal(0.2, 2.2))

    def wide(s: sy.State) -> None:
        s.sample("a", dist.Normal(0.0, 1.5))
        s.sample("b", dist.Normal(0.0, 4.0))

    options: dict[str, Any] = {"key": jax.random.key(0), "particles": 2000, "runs": 50, "max_standard_error": 0.1}
    sy.testing.check_evidence(sy.propose(goal, sy.transport(Linear(), wide)), 0.0, **options)
    with pytest.raises(AssertionError):
        sy.testing.check_evidence(sy.propose(goal, sy.transport(Forgetful(), wide)), 0.0, **options)


def test_one_variable_and_the_others_as_they_are() -> None:
    t = transforms.AffineTransform(1.0, -3.0)
    out = sy.evaluate(sy.transport(t, base, only=["b"]), jax.random.key(0), particles=3)
    plain = sy.evaluate(base, jax.random.key(0), particles=3)
    np.testing.assert_array_equal(out.trace["a"], plain.trace["a"])
    np.testing.assert_allclose(out.trace["b"], 1 - 3 * plain.trace["b"], rtol=1e-6)
    np.testing.assert_allclose(out.log_density["b"], plain.log_density["b"] - np.log(3.0), rtol=1e-5)
    np.testing.assert_array_equal(out.log_density["a"], plain.log_density["a"])
    each = sy.evaluate(sy.transport(t, base), jax.random.key(0), particles=3)
    np.testing.assert_allclose(each.log_density["a"], plain.log_density["a"] - np.log(3.0), rtol=1e-5)


def test_of_vectors() -> None:
    """The determinant of a vector is one number, those of its numbers are summed."""

    def vector(s: sy.State) -> None:
        s.sample("v", dist.Normal(jnp.zeros(3), 1.0).to_event(1))

    def simplex(s: sy.State) -> None:
        s.sample("v", dist.Dirichlet(jnp.array([2.0, 3.0, 1.5, 2.5])))

    def lognormal(s: sy.State) -> None:
        s.sample("v", dist.LogNormal(jnp.zeros(3), 1.0).to_event(1))

    exact = sy.propose(lognormal, sy.transport(transforms.ExpTransform(), vector))
    np.testing.assert_allclose(sy.evaluate(exact, jax.random.key(0), particles=5).log_weight, 0.0, atol=1e-5)
    q = sy.propose(simplex, sy.transport(transforms.StickBreakingTransform(), vector))
    sy.testing.check_evidence(q, 0.0, key=jax.random.key(1), particles=5000, runs=50, max_standard_error=0.1)


def test_leapfrog_steps_are_exact() -> None:
    """A deterministic kernel with a random momentum: Hamiltonian importance sampling."""

    class Leapfrog:
        def _step(self, x: Any, step: float) -> Any:
            v = x["v"] - 0.5 * step * x["z"]
            z = x["z"] + step * v
            return {"z": z, "v": v - 0.5 * step * z}

        def forward(self, x: Any) -> Any:
            return self._step(x, 0.5)

        def inverse(self, y: Any) -> Any:
            return self._step(y, -0.5)

        def log_det(self, x: Any) -> Any:
            return 0.0

    def goal(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 1.0))

    def wide(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.5, 1.3))

    def momentum(s: sy.State, z: Any) -> None:
        s.sample("v", dist.Normal(0.0, 1.0))

    q = sy.propose(sy.extend(goal, momentum), sy.transport(Leapfrog(), sy.compose(momentum, wide)))
    sy.testing.check_evidence(q, 0.0, key=jax.random.key(1), particles=2000, runs=50, max_standard_error=0.05)
    with pytest.raises(sy.AddressError, match="mixes 'v', 'z'.*Extend the target"):
        sy.evaluate(sy.propose(goal, q.q), jax.random.key(0), particles=3)


def test_inside_of_other_programs_under_substitution() -> None:
    def after(s: sy.State, value: Any) -> None:
        s.sample("c", dist.Normal(value[0], 1.0))

    for q in (sy.compose(after, sy.transport(Linear(), base)), sy.rename(sy.transport(Linear(), base), {"a": "z"})):
        out = sy.evaluate(sy.resample(q), jax.random.key(0), particles=3)
        for l in range(3):
            density = sy.log_density(q, {a: x[l] for a, x in out.trace.items()})
            np.testing.assert_allclose(sum(x[l] for x in out.log_density.values()), density, rtol=1e-4)


def test_bijections_of_other_libraries() -> None:
    class Distrax:
        def forward_and_log_det(self, x: Any) -> Any:
            return jnp.exp(x), x

        def inverse_and_log_det(self, y: Any) -> Any:
            return jnp.log(y), -jnp.log(y)

    class Flowjax(Distrax):
        forward_and_log_det = None

        def transform_and_log_det(self, x: Any, condition: Any = None) -> Any:
            return jnp.exp(x), x

    class Tfp:
        def forward(self, x: Any) -> Any:
            return jnp.exp(x)

        def inverse(self, y: Any) -> Any:
            return jnp.log(y)

        def forward_log_det_jacobian(self, x: Any, event_ndims: int = 0) -> Any:
            return x

    def one(s: sy.State) -> None:
        s.sample("z", dist.Normal(0.0, 1.0))

    for bijection in (Distrax(), Flowjax(), Tfp(), transforms.ExpTransform()):
        q = sy.transport(bijection, one)
        np.testing.assert_allclose(sy.log_density(q, {"z": 2.0}), dist.LogNormal(0.0, 1.0).log_prob(2.0), rtol=1e-6)


def test_a_flow_learns() -> None:
    def loss(shift: Any) -> Any:
        def goal(s: sy.State) -> None:
            s.sample("z", dist.Normal(2.0, 1.0))

        def one(s: sy.State) -> None:
            s.sample("z", dist.Normal(0.0, 1.0))

        q = sy.propose(goal, sy.transport(transforms.AffineTransform(shift, 1.0), one))
        return sy.evaluate(q, jax.random.key(0), particles=2000, objective=sy.objectives.elbo).loss

    np.testing.assert_allclose(jax.grad(loss)(0.5), 0.5 - 2.0, atol=0.1)


def test_in_a_loop() -> None:
    """Annealed flow transport, with the same shift in each step: the weights are one where it fits."""

    def goal(t: Any) -> Any:
        return lambda s: s.sample("z", dist.Normal(1.0 * t, 1.0))

    def step(q: Any, t: Any) -> Any:
        return sy.propose(goal(t), sy.transport(transforms.AffineTransform(1.0, 1.0), sy.resample(q)))

    out = sy.evaluate(sy.scan(step, goal(0), jnp.arange(1, 4)), jax.random.key(0), particles=5)
    np.testing.assert_allclose(out.log_weight, 0.0, atol=1e-5)


def test_errors_name_the_remedy() -> None:
    def discrete(s: sy.State) -> None:
        s.sample("k", dist.Poisson(3.0))

    def optional(s: sy.State) -> None:
        z = s.sample("z", dist.Normal(0.0, 1.0))
        with s.when(z > 0):
            s.sample("u", dist.Normal(0.0, 1.0))

    def nothing(s: sy.State) -> None:
        s.factor("f", 0.1)

    key, t = jax.random.key(0), transforms.AffineTransform(0.0, 2.0)
    with pytest.raises(sy.ArgumentError, match="is no bijection"):
        sy.transport(jnp.exp, base)
    with pytest.raises(sy.ArgumentError, match="is no bijection"):
        sy.transport(Linear, base)
    with pytest.raises(sy.ArgumentError, match=r"only=\['a'\]"):
        sy.transport(t, base, only="a")
    with pytest.raises(sy.MeasureError, match="'k'.*discrete"):
        sy.evaluate(sy.transport(t, discrete), key, particles=2)
    with pytest.raises(sy.AddressError, match="no variable 'u' in every particle"):
        sy.evaluate(sy.transport(t, optional), key, particles=4)
    with pytest.raises(sy.AddressError, match="no variable 'q'"):
        sy.evaluate(sy.transport(t, base, only=["q"]), key, particles=2)
    with pytest.raises(sy.AddressError, match="no variable to transport"):
        sy.evaluate(sy.transport(t, nothing), key, particles=2)
    with pytest.raises(sy.AddressError, match="'a' is given and 'b' is not"):
        sy.evaluate(sy.transport(Linear(), base), key, particles=2, given={"a": jnp.zeros(2)})


def test_kernels_move_what_was_transported() -> None:
    """In the coordinates of the program inside: those of a Gamma, which the logarithm made a real number."""

    def gamma(s: sy.State) -> None:
        s.sample("z", dist.Gamma(3.0, 2.0))
        s.sample("other", dist.Normal(0.0, 1.0))

    moved = sy.transport(transforms.ExpTransform().inv, gamma, only=["z"])
    hmc = partial(blackjax.hmc, step_size=0.5, inverse_mass_matrix=jnp.ones(2), num_integration_steps=3)
    out = jax.jit(lambda key: sy.evaluate(sy.mcmc(hmc, moved, steps=3), key, particles=20_000))(jax.random.key(0))
    z = np.asarray(out.trace["z"])
    exact = float(jax.scipy.special.digamma(3.0) - jnp.log(2.0))
    assert abs(z.mean() - exact) < 4.5 * z.std() / 20_000**0.5
    assert out.levels[-1].acceptance > 0.5
    density = sy.log_density(moved, {a: x[0] for a, x in out.trace.items()})
    np.testing.assert_allclose(sum(x[0] for x in out.log_density.values()), density, rtol=1e-4)
    with pytest.raises(sy.ArgumentError, match="move some of them and hold the others"):
        sy.evaluate(sy.mcmc(hmc, sy.transport(Linear(), base), only=["a"]), jax.random.key(0), particles=2)
    linear = sy.mcmc(hmc, sy.transport(Linear(), base))
    sy.testing.check_evidence(
        linear, float(dist.Normal(0.0, 2**0.5).log_prob(0.3)), key=jax.random.key(1), particles=100
    )
