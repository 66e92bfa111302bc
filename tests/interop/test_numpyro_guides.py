"""Automatic guides of NumPyro have the densities that NumPyro says, as proposals and away from their draws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import autoguide

import steelyard as sy

KEY = jax.random.key(0)
GUIDES = {
    "AutoNormal": autoguide.AutoNormal,
    "AutoDiagonalNormal": autoguide.AutoDiagonalNormal,
    "AutoMultivariateNormal": autoguide.AutoMultivariateNormal,
    "AutoLowRankMultivariateNormal": autoguide.AutoLowRankMultivariateNormal,
    "AutoIAFNormal": autoguide.AutoIAFNormal,
    "AutoBNAFNormal": autoguide.AutoBNAFNormal,
}


def model(x: Any) -> None:
    """Variables of several shapes and supports, in an order that is not that of their names."""
    scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    with numpyro.plate("rows", 2):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    numpyro.sample("x", dist.Normal(level.sum() + shares[0], scale), obs=x)


def prepared(guide: Any, *args: Any) -> Any:
    """Parameters away from their initial values, so that nothing is symmetric."""
    params = sy.numpyro_params(guide, jax.random.key(1), *args)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    moved = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


def by_numpyro(guide: Any, params: dict[str, Any], *args: Any) -> Any:
    """A function of a key: values, their log density and the noise that they were made of, all as NumPyro has them."""
    with handlers.block(), handlers.trace() as sites, handlers.seed(rng_seed=1):
        guide(*args)
    constrained = {}
    for name, x in params.items():
        constraint = sites[name]["kwargs"].get("constraint", dist.constraints.real)
        constrained[name] = x if constraint is dist.constraints.real else dist.biject_to(constraint)(x)

    def draw(key: Any) -> Any:
        with handlers.block(), handlers.trace() as sites, handlers.seed(rng_seed=key):
            values = handlers.substitute(guide, data=constrained)(*args)
        drawn = [s for s in sites.values() if s["type"] == "sample"]
        densities = [s["fn"].log_prob(s["value"], *([s["intermediates"]] if s["intermediates"] else [])) for s in drawn]
        intermediates = drawn[0]["intermediates"]
        return values, sum(d.sum() for d in densities), intermediates[0][0] if intermediates else None

    return draw


@pytest.mark.parametrize("name", [name for name in GUIDES if name != "AutoBNAFNormal"])
def test_the_density_of_an_automatic_guide_is_numpyros(name: str) -> None:
    guide = GUIDES[name](model)
    params = prepared(guide, 1.3)
    q, draw = sy.from_numpyro(guide, params), by_numpyro(guide, params, 1.3)

    @jax.jit
    def compare(key: Any) -> Any:
        values, expected, _ = jax.vmap(draw)(jax.random.split(key, 10))
        return expected, sy.evaluate(q, key, 1.3, particles=10, given=values).log_weight

    expected, given = compare(KEY)
    np.testing.assert_allclose(given, expected, rtol=1e-4, atol=2e-4)


def test_a_flow_without_inverse_has_numpyros_density_at_its_draws() -> None:
    guide = autoguide.AutoBNAFNormal(model, hidden_factors=[3])
    params = prepared(guide, 1.3)
    q: Any = sy.from_numpyro(guide, params)
    draw = by_numpyro(guide, params, 1.3)

    @jax.jit
    def compare(key: Any) -> Any:
        values, expected, noise = draw(key)
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in q.bijection.shapes.values()])
        parts = zip(q.bijection.shapes.items(), jnp.split(noise, ends[:-1]), strict=True)
        ours, log_det = q.bijection.forward_and_log_det({name: x.reshape(shape) for (name, shape), x in parts})
        return values, ours, expected, dist.Normal(0.0, 1.0).log_prob(noise).sum() - log_det

    values, ours, expected, density = compare(KEY)
    for name in values:
        np.testing.assert_allclose(ours[name], values[name], rtol=1e-5)
    np.testing.assert_allclose(density, expected, rtol=1e-4)
    with pytest.raises(sy.ArgumentError, match="AutoIAFNormal"):
        sy.evaluate(q, KEY, 1.3, particles=1, given=jax.tree.map(lambda x: x[None], values))


def test_the_log_determinant_is_that_of_the_jacobian() -> None:
    def plain() -> None:
        numpyro.sample("z", dist.Normal(jnp.array([0.5, -0.5]), 0.5).to_event(1))
        numpyro.sample("a", dist.Exponential(1.0))

    guide = autoguide.AutoIAFNormal(plain)
    q: Any = sy.from_numpyro(guide, prepared(guide))

    def flat(x: Any) -> Any:
        values = q.bijection.forward_and_log_det({"a": x[0], "z": x[1:]})[0]
        return jnp.concatenate([values["a"][None], values["z"]])

    x = jnp.array([0.3, -1.0, 0.7])
    _, log_det = q.bijection.forward_and_log_det({"a": x[0], "z": x[1:]})
    np.testing.assert_allclose(log_det, jnp.linalg.slogdet(jax.jacfwd(flat)(x))[1], rtol=1e-4)


def test_an_automatic_guide_proposes_with_the_density_of_its_draws() -> None:
    guide = autoguide.AutoMultivariateNormal(model)
    p, q = sy.from_numpyro(model), sy.from_numpyro(guide, prepared(guide, 1.3))

    @jax.jit
    def weights(key: Any) -> Any:
        out = sy.evaluate(sy.propose(p, q), key, 1.3, particles=10)
        alone = sy.evaluate(q, key, 1.3, particles=10)
        target = jax.vmap(lambda t: sy.log_density(p, t, 1.3))(dict(alone.trace))
        return alone.log_weight, out.log_weight, target - sum(alone.log_density.values())

    before, weight, expected = weights(KEY)
    assert (before == 0).all()
    np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-4)


def test_a_guide_of_one_variable_and_a_target_without_one_of_many() -> None:
    def one() -> None:
        numpyro.sample("z", dist.Gamma(2.0, 1.0))

    guide = autoguide.AutoDiagonalNormal(one)
    sy.numpyro_params(guide, KEY)
    q = sy.from_numpyro(guide, {"auto_loc": jnp.array([0.3]), "auto_scale": jnp.array([1.0])})
    out = sy.evaluate(sy.propose(sy.from_numpyro(one), q), KEY, particles=4000)
    assert abs(out.log_z) < 4 / float(out.ess) ** 0.5
    guide = autoguide.AutoDiagonalNormal(model)
    q = sy.from_numpyro(guide, prepared(guide, 1.3))
    with pytest.raises(sy.AddressError, match="mixes"):
        sy.evaluate(sy.propose(lambda s, x: s.sample("scale", dist.Gamma(2.0, 1.0)), q), KEY, 1.3, particles=2)


def test_guides_that_cannot_be_programs_are_refused() -> None:
    with pytest.raises(sy.ArgumentError, match="AutoDelta.*AutoNormal"):
        sy.from_numpyro(autoguide.AutoDelta(model))
    with pytest.raises(sy.ArgumentError, match="AutoLaplaceApproximation is not known"):
        sy.from_numpyro(autoguide.AutoLaplaceApproximation(model))
    with pytest.raises(sy.ArgumentError, match="numpyro_params"):
        sy.from_numpyro(autoguide.AutoNormal(model))


def test_an_automatic_guide_that_numpyro_learned_comes_in() -> None:
    guide = autoguide.AutoMultivariateNormal(model)
    sy.numpyro_params(guide, KEY, 1.3)
    values = {"auto_loc": jnp.arange(5.0) / 5, "auto_scale_tril": jnp.eye(5) * 0.5 + 0.1 * jnp.tri(5, 5, -1)}
    params = sy.numpyro_params(handlers.substitute(guide, data=values), KEY, 1.3)
    draws = sy.evaluate(sy.from_numpyro(guide, params), KEY, 1.3, particles=4000).trace
    expected = guide.sample_posterior(KEY, values, sample_shape=(4000,))
    for name in ("scale", "shares", "level"):
        a, b = draws[name], expected[name]
        np.testing.assert_allclose(a.mean(0), b.mean(0), atol=4 * float(a.std()) * (2 / 4000) ** 0.5)
