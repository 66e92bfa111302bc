"""NumPyro models as programs, beyond their densities: weights, traces, control flow, parameters and refusals."""

import threading
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from flax import nnx
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.contrib.module import nnx_module
from numpyro.infer.util import log_density
from numpyro.primitives import mutable

import steelyard as sy
from steelyard.distributions.coordinates import Placed, Position
from steelyard.engines.single import at_particle
from steelyard.language.programs import Primitive
from steelyard.maps import Map
from steelyard.semantics.values import Values
from tests.interop.models import CASES, EFFECTS, ERRORS, autoregressive, eight_schools

KEY = jax.random.key(0)


def test_a_discrete_model_and_guide_are_properly_weighted() -> None:
    def model(x: int) -> None:
        k = numpyro.sample("k", dist.Bernoulli(0.3))
        with handlers.scale(scale=3.0):
            j = numpyro.sample("j", dist.Bernoulli(0.1 + 0.3 * k))
        with handlers.scale(scale=2.0):
            numpyro.sample("x", dist.Bernoulli(0.2 + 0.5 * j), obs=x)
        numpyro.factor("bonus", 0.3 * k)

    def guide(x: int) -> None:
        numpyro.sample("k", dist.Bernoulli(0.6))
        with handlers.scale(scale=0.5):
            numpyro.sample("j", dist.Bernoulli(0.3))

    p = sy.from_numpyro(model)
    sy.testing.assert_properly_weighted(sy.propose(p, sy.from_numpyro(guide)), 1, particles=1)


def test_a_latent_variable_to_a_power_is_weighted_as_log_density_says() -> None:
    def model() -> None:
        with handlers.scale(scale=0.25):
            numpyro.sample("z", dist.Normal(1.0, 2.0))

    out = sy.evaluate(sy.from_numpyro(model), KEY, particles=4000)
    # The integral of Normal(1, 2)^(1/4): another normal, with twice the scale.
    log_z = 0.25 * -0.5 * np.log(2 * np.pi * 4.0) + 0.5 * np.log(2 * np.pi * 16.0)
    assert abs(out.log_z - log_z) < 4 / 4000**0.5 * 3
    outside = sy.log_density(sy.from_numpyro(lambda: handlers.scale(_positive, scale=0.5)()), {"z": -1.0})
    assert outside == -jnp.inf


def _positive() -> None:
    numpyro.sample("z", dist.Exponential(1.0))


def chain(y: Any, reverse: bool = False) -> Any:
    def step(before: Any, now: Any) -> Any:
        x = numpyro.sample("x", dist.Normal(0.5 * before, 1.0))
        r = numpyro.sample("r", dist.Exponential(0.5 + x**2))
        numpyro.sample("y", dist.Normal(x, r), obs=now)
        return x, (x, r)

    return scan(step, jnp.ones(()), y, reverse=reverse)[1]


@pytest.mark.parametrize(("reverse", "engine"), [(True, "vectorized"), (False, "universal")])
def test_a_scan_draws_and_weighs_each_step_after_the_one_before(reverse: bool, engine: Any) -> None:
    y = jnp.array([0.3, -1.0, 2.0])
    p = sy.from_numpyro(partial(chain, reverse=reverse))
    out = sy.evaluate(p, KEY, y, particles=3, engine=engine)
    xs, rs = out.value
    np.testing.assert_array_equal(xs, out.trace["x"])
    np.testing.assert_array_equal(rs, out.trace["r"])
    assert len(np.unique(np.asarray(xs))) == 9
    trace = {a: jnp.asarray(out.trace[a][1]) for a in ("x", "r")}
    expected = sum(_steps(trace, y, reverse))
    np.testing.assert_allclose(sum(float(d[1]) for d in out.log_density.values()), expected, rtol=1e-5)
    np.testing.assert_allclose(sy.log_density(p, trace, y), expected, rtol=1e-5)


def _steps(trace: dict[str, Any], y: Any, reverse: bool) -> list[float]:
    x, r, before, terms = trace["x"], trace["r"], 1.0, []
    for t in range(len(y))[:: -1 if reverse else 1]:
        terms.append(dist.Normal(0.5 * before, 1.0).log_prob(x[t]))
        terms.append(dist.Exponential(0.5 + x[t] ** 2).log_prob(r[t]))
        terms.append(dist.Normal(x[t], r[t]).log_prob(y[t]))
        before = x[t]
    return terms


def test_draws_of_a_scan_have_the_distribution_of_their_steps() -> None:
    y = jnp.zeros(3)
    x = sy.evaluate(sy.from_numpyro(chain), KEY, y, particles=4000).trace["x"]
    noise = x - 0.5 * jnp.concatenate([jnp.ones((4000, 1)), x[:, :-1]], axis=1)
    assert jnp.abs(noise.mean(0)).max() < 4 / 4000**0.5
    assert jnp.abs(jnp.cov(noise.T) - jnp.eye(3)).max() < 0.1


def test_plates_handlers_and_substituted_values_inside_and_around_a_scan() -> None:
    def model() -> Any:
        def step(before: Any, _: Any) -> Any:
            with numpyro.plate("units", 2), handlers.scope(prefix="in"):
                x = numpyro.sample("x", dist.Normal(before, 1.0))
                z = numpyro.sample("z", dist.Normal(x, 1.0))
            return x.sum(), (x, z)

        with handlers.scale(scale=2.0):
            return scan(step, jnp.zeros(()), None, length=3)[1]

    fixed = handlers.substitute(model, data={"in/z": jnp.arange(6.0).reshape(3, 2)})
    out = sy.evaluate(sy.from_numpyro(fixed), KEY, particles=3)
    x, z = out.value
    np.testing.assert_array_equal(x, out.trace["in/x"])
    np.testing.assert_array_equal(z[0], jnp.arange(6.0).reshape(3, 2))
    assert sorted(out.log_density) == ["in/x", "in/x:scale", "in/z"]
    before = jnp.concatenate([jnp.zeros((3, 1)), x.sum(2)[:, :-1]], axis=1)[..., None]
    prior, given = dist.Normal(before, 1.0).log_prob(x).sum((1, 2)), dist.Normal(x, 1.0).log_prob(z).sum((1, 2))
    np.testing.assert_allclose(out.log_density["in/x"], prior, rtol=1e-5)
    np.testing.assert_allclose(out.log_weight, prior + 2 * given, rtol=1e-5)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_part_of_a_scan_may_be_proposed(engine: Any) -> None:
    def guide(y: Any) -> None:
        numpyro.sample("x", dist.Normal(y, 1.0))

    y = jnp.array([0.3, -1.0, 2.0])
    p, q = sy.from_numpyro(chain), sy.from_numpyro(guide)
    out = sy.evaluate(sy.propose(p, q), KEY, y, particles=3, engine=engine)
    x, r = jnp.asarray(out.trace["x"]), jnp.asarray(out.trace["r"])
    before = jnp.concatenate([jnp.ones((3, 1)), x[:, :-1]], axis=1)
    terms = dist.Normal(0.5 * before, 1.0).log_prob(x) + dist.Normal(x, r).log_prob(y) - dist.Normal(y, 1.0).log_prob(x)
    expected = terms.sum(1)
    np.testing.assert_allclose(out.log_weight, expected, rtol=1e-4)


def test_a_scan_inside_of_when_is_absent_with_it() -> None:
    def model(s: sy.State, y: Any) -> Any:
        on = s.sample("on", dist.Bernoulli(0.5))
        with s.when(on == 1):
            sy.from_numpyro(chain)(s, y)  # pyright: ignore
        return on

    y = jnp.array([0.3, -1.0])
    out = sy.evaluate(model, KEY, y, particles=20)
    assert (out.trace.present("x") == (out.trace["on"] == 1)).all()
    assert (jnp.where(out.value == 0, out.log_weight, 0.0) == 0).all()
    off = out.trace.values_at["x"][np.asarray(out.value == 0)]
    np.testing.assert_array_equal(off, jnp.broadcast_to(off[:1], off.shape))


def test_what_a_scan_samples_has_unconstrained_coordinates() -> None:
    y, x, r = jnp.array([0.3, -1.0, 2.0]), jnp.array([0.1, -0.4, 1.2]), jnp.array([0.7, 2.0, 0.4])
    p = sy.from_numpyro(chain)
    at = at_particle(Primitive(p), Values.shared((y,)), 0)  # pyright: ignore
    placed = at(Map({"x": Placed(x), "r": Placed(r)}))
    np.testing.assert_allclose(placed.trace["r"].coordinates, jnp.log(r), rtol=1e-5)
    moved = at(Map({"x": Position(x), "r": Position(jnp.log(r))}))
    expected = sum(_steps({"x": x, "r": r}, y, False)) + jnp.log(r).sum()
    np.testing.assert_allclose(sum(moved.log_density.values()), expected, rtol=1e-5)


def test_mcmc_moves_what_a_scan_samples() -> None:
    hmc = partial(blackjax.hmc, step_size=0.1, inverse_mass_matrix=jnp.ones(4), num_integration_steps=3)
    q = sy.mcmc(hmc, sy.from_numpyro(chain))
    out = sy.evaluate(q, KEY, jnp.array([0.3, -1.0]), particles=50)
    before = sy.evaluate(q.q, KEY, jnp.array([0.3, -1.0]), particles=50)
    assert (out.trace["r"] > 0).all() and not jnp.allclose(out.trace["r"], before.trace["r"])
    np.testing.assert_array_equal(out.log_weight, before.log_weight)


def test_cond_takes_one_branch_for_each_particle() -> None:
    model, args, _ = CASES["chosen"]
    out = sy.evaluate(sy.from_numpyro(model), KEY, *args, particles=3000)
    side, near = out.trace["side"], out.trace["near"]
    left = side < 0
    assert abs(jnp.std(jnp.where(left, near + 3 * side, 0.0)[left]) - 0.2) < 0.02
    assert abs(jnp.std((near - side)[~left]) - 1.0) < 0.1


def test_subsampled_rows_and_keys_are_variables_that_a_model_shares_with_its_guide() -> None:
    def model(y: Any) -> Any:
        with numpyro.plate("rows", 5, subsample_size=2) as rows:
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y[rows])
        key = numpyro.prng_key()
        with handlers.block():
            hidden = numpyro.sample("hidden", dist.Normal(0.0, 1.0))
        numpyro.factor("noise", hidden + jax.random.normal(key))
        return rows, hidden

    def guide(y: Any) -> Any:
        with numpyro.plate("rows", 5, subsample_size=2) as rows:
            return rows

    y = jnp.arange(5.0)
    p = sy.from_numpyro(model)
    out = sy.evaluate(sy.propose(p, sy.from_numpyro(guide)), KEY, y, particles=200)
    rows, hidden = out.value
    assert sorted(out.trace) == ["prng_key", "prng_key_2", "rows"]
    np.testing.assert_array_equal(rows, out.trace["rows"])
    assert (rows[:, 0] != rows[:, 1]).all() and set(np.unique(np.asarray(rows))) == set(range(5))
    assert len(np.unique(np.asarray(hidden))) == 200
    expected = 2.5 * dist.Normal(0.0, 1.0).log_prob(y[rows]).sum(1)
    np.testing.assert_allclose(out.log_density["y"], expected, rtol=1e-5)
    again = jax.vmap(lambda t: sy.log_density(p, t, y))(dict(out.trace))
    np.testing.assert_allclose(out.log_weight, again, rtol=1e-5)


def test_parameters_keep_their_constraints_and_learn() -> None:
    def model(x: Any) -> None:
        numpyro.sample("x", dist.Normal(numpyro.sample("z", dist.Normal(0.0, 1.0)), 1.0), obs=x)

    def guide(x: Any) -> None:
        scale = numpyro.param("scale", 3.0, constraint=dist.constraints.interval(0.1, 5.0))
        numpyro.sample("z", dist.Normal(numpyro.param("mean", -1.0), scale))

    params = sy.numpyro_params(guide, KEY, 1.0)
    assert sorted(params) == ["mean", "scale"]

    def program(params: Any) -> Any:
        p, q = (sy.from_numpyro(partial(f, 1.0), v) for f, v in ((model, None), (guide, params)))
        return sy.algorithms.svi(p, q)

    result = sy.train(program, params, optimizer=optax.adam(0.05), steps=300, key=KEY, particles=20, progress=False)
    scale = 0.1 + 4.9 * jax.nn.sigmoid(result.models["scale"])
    assert abs(result.models["mean"] - 0.5) < 0.1 and abs(scale - 0.5**0.5) < 0.1


def test_parameters_of_svi_come_in_by_substitute() -> None:
    def guide() -> None:
        scale = numpyro.param("scale", jnp.ones(2), constraint=dist.constraints.positive)
        numpyro.sample("z", dist.Normal(0.0, scale))

    values = {"scale": jnp.array([0.3, 4.0])}
    params = sy.numpyro_params(handlers.substitute(guide, data=values), KEY)
    z = jnp.array([0.1, 2.0])
    density = sy.log_density(sy.from_numpyro(guide, params), {"z": z})
    np.testing.assert_allclose(density, dist.Normal(0.0, values["scale"]).log_prob(z).sum(), rtol=1e-5)


def test_random_modules_do_not_write_into_the_parameters() -> None:
    model, args, _ = CASES["bayesian_network"]
    params = sy.numpyro_params(model, KEY, *args)
    before = jax.tree.structure(params)
    out = sy.evaluate(sy.from_numpyro(model, params), KEY, *args, particles=2)
    assert jax.tree.structure(params) == before
    assert sorted(out.trace) == ["net/Dense_0.kernel", "net/Dense_1.bias"]
    assert len(jax.tree.leaves(params)) == 2


def test_an_adapted_model_is_the_same_computation_as_one_written_natively() -> None:
    def native(s: sy.State, y: Any, sigma: Any) -> Any:
        mu = s.sample("mu", dist.Normal(0.0, 5.0))
        tau = s.sample("tau", dist.HalfCauchy(5.0))
        theta = s.sample("theta", dist.Normal(mu * jnp.ones(8), tau * jnp.ones(8)))
        s.observe("obs", dist.Normal(theta, sigma), y)
        return theta

    def operations(p: Any) -> int:
        def run(key: Any) -> Any:
            out = sy.evaluate(p, key, EFFECTS, ERRORS, particles=50)
            return out.log_weight, dict(out.trace)

        text = jax.jit(run).lower(KEY).compile().as_text()
        return sum(" = " in line for line in text.splitlines())

    assert operations(sy.from_numpyro(eight_schools)) <= 1.05 * operations(native)


def test_threads_do_not_mix_their_sites() -> None:
    found: dict[int, Any] = {}

    def run(number: int) -> None:
        def model() -> None:
            for i in range(30):
                numpyro.sample(f"z{number}_{i}", dist.Normal(0.0, 1.0))

        found[number] = sorted(sy.addresses(sy.from_numpyro(model)).trace)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[i] == sorted(f"z{i}_{j}" for j in range(30)) for i in range(4))


def test_handlers_around_an_evaluation_do_not_see_its_sites() -> None:
    with handlers.seed(rng_seed=0), handlers.trace() as sites, handlers.scale(scale=7.0):
        out = sy.evaluate(sy.from_numpyro(eight_schools), KEY, EFFECTS, ERRORS, particles=2)
    alone = sy.evaluate(sy.from_numpyro(eight_schools), KEY, EFFECTS, ERRORS, particles=2)
    assert not sites
    np.testing.assert_allclose(out.log_weight, alone.log_weight, rtol=1e-6)


def test_an_intervention_leaves_the_density_of_what_it_replaces() -> None:
    def model() -> Any:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        return numpyro.sample("b", dist.Normal(a, 1.0))

    done = handlers.do(model, data={"a": 3.0})
    trace = {"a": 0.3, "b": 2.0}
    expected = dist.Normal(0.0, 1.0).log_prob(0.3) + dist.Normal(3.0, 1.0).log_prob(2.0)
    np.testing.assert_allclose(sy.log_density(sy.from_numpyro(done), trace), expected, rtol=1e-6)


def _scan_of(f: Any) -> Any:
    return lambda: scan(lambda c, x: (f() or c, None), jnp.zeros(()), jnp.arange(3.0))


def _stateful() -> None:
    mutable("state", {"count": 0})


def _normalized() -> None:
    nnx_module("net", nnx.BatchNorm(2, rngs=nnx.Rngs(0)))(jnp.ones((3, 2)))


def _unequal() -> None:
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    cond(
        z > 0,
        lambda _: numpyro.sample("a", dist.Normal(0.0, 1.0)),
        lambda _: numpyro.sample("b", dist.Normal(0.0, 1.0)),
        None,
    )


REFUSED = {
    "param in a scan": (_scan_of(lambda: numpyro.param("w", 1.0)), "'w' cannot be inside of a scan"),
    "key in a scan": (_scan_of(lambda: jax.random.normal(numpyro.prng_key())), "prng_key cannot be inside of a scan"),
    "plate in a scan": (
        _scan_of(lambda: numpyro.plate("rows", 5, subsample_size=2) and None),
        "'rows' cannot be inside",
    ),
    "scan in a scan": (_scan_of(_scan_of(lambda: None)), "control flow cannot be inside of a scan"),
    "renamed scan": (
        lambda: handlers.scope(chain, prefix="out")(jnp.zeros(3)),
        "'x' was sampled inside of control flow",
    ),
    "short data": (handlers.condition(lambda: chain(jnp.zeros(3)), data={"x": jnp.zeros(2)}), "some of its steps"),
    "branches": (_unequal, "branches of cond"),
    "mutable": (_stateful, "'state' is mutable"),
    "lazy param": (lambda: numpyro.param("w", lambda key: jax.random.normal(key)), "numpyro_params"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_program_says_so(name: str) -> None:
    model, message = REFUSED[name]
    with pytest.raises(sy.ArgumentError, match=message):
        sy.evaluate(sy.from_numpyro(model), KEY, particles=2)


def test_state_and_parameters_that_are_missing_are_named() -> None:
    params = sy.numpyro_params(_normalized, KEY)
    with pytest.raises(sy.ArgumentError, match=r"'net\$state' is mutable"):
        sy.evaluate(sy.from_numpyro(_normalized, params), KEY, particles=2)
    with pytest.raises(sy.ArgumentError, match=r"'net\$params' has no value"):
        sy.evaluate(sy.from_numpyro(_normalized), KEY, particles=2)
    with pytest.raises(sy.ArgumentError, match="not inside of its constraint"):
        sy.numpyro_params(lambda: numpyro.param("w", 0.0, constraint=dist.constraints.positive), KEY)


@pytest.mark.usefixtures("as_users_run_it")
def test_arguments_of_a_wrong_kind_are_refused() -> None:
    with pytest.raises(sy.ArgumentError, match="is a function"):
        sy.from_numpyro(3)  # pyright: ignore
    with pytest.raises(sy.ArgumentError, match="params is a dictionary"):
        sy.from_numpyro(eight_schools, [1.0])  # pyright: ignore


def test_gradients_flow_through_the_steps_of_a_scan() -> None:
    def total(a: Any) -> Any:
        def model() -> None:
            def step(before: Any, _: Any) -> Any:
                x = numpyro.sample("x", dist.Normal(a * before, 1.0 + a**2))
                return x, numpyro.sample("k", dist.Bernoulli(logits=x))

            _, k = scan(step, jnp.ones(()), None, length=3)
            numpyro.factor("bonus", 0.1 * k.sum())

        out = sy.evaluate(sy.from_numpyro(model), KEY, particles=3)
        return (out.trace["x"] * jnp.arange(1.0, 4.0)).sum(), out.log_weight.sum()

    _, (tangent, of_discrete) = jax.jvp(total, (0.4,), (1.0,))
    difference = (total(0.41)[0] - total(0.39)[0]) / 0.02
    np.testing.assert_allclose(tangent, difference, rtol=1e-2)
    assert of_discrete == 0


def test_chunks_double_precision_and_jit_in_jit() -> None:
    p = sy.from_numpyro(autoregressive)
    y = jnp.array([0.3, -1.0, 2.0])

    def log_z(y: Any, **options: Any) -> Any:
        return sy.evaluate(p, KEY, y, particles=6, **options).log_z

    np.testing.assert_allclose(jax.jit(jax.jit(log_z))(y), log_z(y, chunk=2, optimize=False), rtol=1e-5)
    with jax.enable_x64(True):
        y = np.asarray(y, np.float64)
        out = sy.evaluate(p, KEY, y, particles=2)
        expected = log_density(autoregressive, (y,), {}, {a: x[0] for a, x in out.trace.items()})[0]
        np.testing.assert_allclose(sum(d[0] for d in out.log_density.values()), expected, rtol=1e-12)
