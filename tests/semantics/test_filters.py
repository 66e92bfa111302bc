"""Filters whose memory does not grow: what they drop, what they keep, and their evidence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy

YS = jnp.array([0.3, -0.2, 0.9, 1.4, 0.2, -0.7])
SLOPE, STATE_NOISE, DATA_NOISE = 0.8, 0.6, 0.5


def first(s: sy.State) -> Any:
    return s.sample("z", dist.Normal(0.0, 1.0))


def transition(y: Any) -> Any:
    def step(s: sy.State, z: Any) -> Any:
        z = s.sample("z", dist.Normal(SLOPE * z, STATE_NOISE))
        s.observe("y", dist.Normal(z, DATA_NOISE), y)
        return z

    return step


def guide(y: Any) -> Any:
    gain = STATE_NOISE**2 / (STATE_NOISE**2 + DATA_NOISE**2)
    scale = (1 - gain) ** 0.5 * STATE_NOISE
    return lambda s, z: s.sample("z", dist.Normal(SLOPE * z + gain * (y - SLOPE * z), scale))


def kalman() -> float:
    mean, variance, log_z = 0.0, 1.0, 0.0
    for y in np.asarray(YS, float):
        mean, variance = SLOPE * mean, SLOPE**2 * variance + STATE_NOISE**2
        total = variance + DATA_NOISE**2
        log_z += -0.5 * (y - mean) ** 2 / total - 0.5 * np.log(2 * np.pi * total)
        gain = variance / total
        mean, variance = mean + gain * (y - mean), (1 - gain) * variance
    return float(log_z)


@pytest.mark.parametrize("proposals", [None, guide])
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_the_evidence_is_the_kalman_filters(proposals: Any, threshold: float | None) -> None:
    q = sy.algorithms.smc(transition, proposals, YS, initial=first, threshold=threshold)
    sy.testing.check_evidence(q, kalman(), key=jax.random.key(0), particles=800, runs=100)


def test_a_filter_is_the_composition_of_its_steps() -> None:
    """With addresses of their own the steps keep the whole trajectory in the trace: the same particles."""

    def numbered(t: int) -> Any:
        if t == 0:
            return sy.rename(first, {"z": "z0"})
        return sy.rename(transition(YS[t - 1]), {"z": f"z{t}", "y": f"y{t}"})

    whole = sy.evaluate(sy.algorithms.smc([numbered(t) for t in range(len(YS) + 1)]), jax.random.key(1), particles=9)
    out = sy.evaluate(
        sy.algorithms.smc(transition, None, YS, initial=first, keep=["z"]), jax.random.key(1), particles=9
    )
    np.testing.assert_allclose(out.log_weight, whole.log_weight, rtol=1e-4, atol=1e-5)
    trajectories = out.trajectories()["z"]
    expected = jnp.stack([whole.trace[f"z{t}"] for t in range(len(YS) + 1)], axis=1)
    np.testing.assert_allclose(trajectories, expected, rtol=1e-4, atol=1e-5)
    assert sorted(out.trace) == ["z"]


def test_trajectories_follow_a_resampling_after_the_scan() -> None:
    q = sy.resample(sy.algorithms.smc(transition, None, YS, initial=first, keep=["z"]))
    out = sy.evaluate(q, jax.random.key(1), particles=9)
    np.testing.assert_allclose(out.trajectories()["z"][:, -1], out.trace["z"])


def test_trajectories_of_a_batch_and_of_the_other_engine() -> None:
    q = sy.algorithms.smc(transition, None, YS, initial=first, keep=["z"])
    keys = jax.random.split(jax.random.key(1), 3)
    batch = jax.vmap(lambda key: sy.evaluate(q, key, particles=7))(keys).trajectories()["z"]
    for key, expected in zip(keys, batch, strict=True):
        single = sy.evaluate(q, key, particles=7).trajectories()["z"]
        np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-5)
    universal = sy.evaluate(q, keys[2], particles=7, engine="universal").trajectories()["z"]
    np.testing.assert_allclose(universal, batch[2], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_only_variables_that_all_particles_have_can_be_kept(engine: Any) -> None:
    q = sy.algorithms.smc(transition, None, YS, initial=first, keep=["w"])
    with pytest.raises(sy.AddressError, match="no variable 'w' to keep in every particle; there are 'z'"):
        sy.evaluate(q, jax.random.key(0), particles=3, engine=engine)

    def sometimes(s: sy.State, z: Any = 0.0) -> Any:
        with s.when(s.sample("flag", dist.Bernoulli(0.5)) == 1):
            return s.sample("z", dist.Normal(0.0, 1.0))

    q = sy.scan(lambda q, _: sy.move(sometimes, q), sometimes, None, length=2, keep=["z"])
    with pytest.raises(sy.AddressError, match="there are 'flag'"):
        sy.evaluate(q, jax.random.key(0), particles=9, engine=engine)


def annealing_step(q: Any, b: Any) -> Any:
    def density(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(b, 2.0 - b))

    def forward(s: sy.State, z: Any) -> Any:
        return s.sample("z", dist.Normal(0.7 * z + 0.4 * b, 0.8))

    def reverse(s: sy.State, z: Any) -> Any:
        return s.sample("z", dist.Normal(0.9 * z - 0.1, 0.9))

    return sy.resample(sy.propose(sy.extend(density, sy.prev(reverse)), sy.move(forward, q)))


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_a_sampler_that_drops_nothing_can_keep_its_samples(engine: Any) -> None:
    """Every step proposes for a target of one variable, so that its density is known all along."""

    def start(s: sy.State) -> Any:
        return s.sample("z", dist.Normal(0.0, 2.0))

    def numbers(values: Any) -> Any:
        return np.asarray(values, float)

    betas = jnp.array([0.2, 0.5, 1.0])
    scans = [sy.scan(annealing_step, start, betas, keep=kept) for kept in (["z"], None)]
    keep, plain = (sy.evaluate(q, jax.random.key(2), particles=7, engine=engine) for q in scans)
    np.testing.assert_allclose(keep.log_weight, plain.log_weight, rtol=1e-5)
    proposed, expected = (
        sy.evaluate(sy.propose(start, q), jax.random.key(2), particles=7, engine=engine) for q in scans
    )
    np.testing.assert_allclose(proposed.log_weight, expected.log_weight, rtol=1e-5)
    assert np.ptp(numbers(proposed.log_weight)) > 0
    np.testing.assert_array_equal(numbers(keep.trace["z"]), numbers(plain.trace["z"]))
    assert keep.kept is not None
    np.testing.assert_array_equal(numbers(keep.kept.values["z"][-1]), numbers(plain.trace["z"]))
    for k in (1, 2):
        shorter = sy.evaluate(sy.scan(annealing_step, start, betas[:k]), jax.random.key(2), particles=7, engine=engine)
        np.testing.assert_allclose(numbers(keep.kept.values["z"][k - 1]), numbers(shorter.trace["z"]), rtol=1e-6)


@pytest.mark.parametrize("engine", ["vectorized", "universal"])
def test_a_proposal_that_dropped_variables_has_no_density_to_divide_by(engine: Any) -> None:
    q = sy.propose(first, sy.algorithms.smc(transition, None, YS, initial=first))
    with pytest.raises(sy.GrammarError, match="density to divide by"):
        sy.evaluate(q, jax.random.key(0), particles=3, engine=engine)

    def step(q: Any, y: Any) -> Any:
        return sy.move(transition(y), sy.propose(first, q))

    with pytest.raises(sy.GrammarError, match="density to divide by"):
        sy.evaluate(sy.scan(step, first, YS, keep=["z"]), jax.random.key(0), particles=3, engine=engine)


def test_memory_does_not_grow_with_the_number_of_steps() -> None:
    def temporaries(steps: int) -> int:
        q = sy.algorithms.smc(transition, None, jnp.zeros(steps), initial=first)
        run = jax.jit(lambda key: sy.evaluate(q, key, particles=1000).log_z)
        return run.lower(jax.random.key(0)).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(1000) < temporaries(10) + 8 * 1000 * 10


def test_what_was_dropped_has_no_density() -> None:
    q = sy.algorithms.smc(transition, None, YS, initial=first)
    with pytest.raises(sy.GrammarError, match="keeps only the newest version"):
        sy.log_density(q, {"z": 0.0})
    with pytest.raises(sy.ArgumentError, match="nothing was kept"):
        sy.evaluate(sy.algorithms.smc([first]), jax.random.key(0), particles=2).trajectories()


def guided(method: Any, gain: Any) -> sy.Evaluation:
    def learned(y: Any) -> Any:
        return lambda s, z: s.sample("z", dist.Normal(SLOPE * z + gain * (y - SLOPE * z), 0.4))

    return sy.evaluate(method(transition, learned, YS, initial=first), jax.random.key(0), particles=200)


@pytest.mark.long
def test_variational_smc_follows_its_bound() -> None:
    np.testing.assert_allclose(guided(sy.algorithms.vsmc, 0.3).loss, -guided(sy.algorithms.vsmc, 0.3).log_z, rtol=1e-4)
    through_the_loss = jax.grad(lambda gain: guided(sy.algorithms.vsmc, gain).loss)(0.3)
    np.testing.assert_allclose(
        through_the_loss, jax.grad(lambda x: -guided(sy.algorithms.smc, x).log_z)(0.3), rtol=1e-3
    )


def test_neural_adaptive_smc_leads_to_the_optimal_gain() -> None:
    far, near = (jax.grad(lambda x: guided(sy.algorithms.nasmc, x).loss)(gain) for gain in (0.0, 0.59))
    assert far < -1.0 and abs(near) < abs(far) / 2


@pytest.mark.parametrize("method", [sy.algorithms.vsmc, sy.algorithms.nasmc])
def test_losses_and_gradients_of_a_filter_are_those_of_its_steps_written_out(method: Any) -> None:
    def learned(gain: Any) -> Any:
        return lambda y: lambda s, z: s.sample("z", dist.Normal(SLOPE * z + gain * (y - SLOPE * z), 0.4))

    def looped(gain: Any) -> Any:
        return method(transition, learned(gain), YS, initial=sy.propose(first, first))

    def written_out(gain: Any) -> Any:
        steps, proposals = [first, *map(transition, YS)], [first, *map(learned(gain), YS)]
        return method(
            [sy.rename(f, {"z": f"z{t}"} if f is first else {"z": f"z{t}", "y": f"y{t}"}) for t, f in enumerate(steps)],
            [sy.rename(f, {"z": f"z{t}"}) for t, f in enumerate(proposals)],
        )

    def run(build: Any) -> Any:
        def loss(gain: Any) -> Any:
            out = sy.evaluate(build(gain), jax.random.key(4), particles=9)
            return out.loss, out.log_weight

        return jax.value_and_grad(loss, has_aux=True)(0.3)

    ((rolled, rolled_weight), rolled_gradient), ((plain, weight), gradient) = run(looped), run(written_out)
    np.testing.assert_allclose(rolled_weight, weight, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rolled, plain, rtol=1e-4)
    assert abs(gradient) > 0.1
    np.testing.assert_allclose(rolled_gradient, gradient, rtol=1e-3)


@pytest.mark.parametrize("length", [1, 4])
def test_a_filter_may_begin_without_what_its_steps_observe(length: int) -> None:
    """As with a factor of one, bit for bit, guided steps included."""

    def with_a_factor(s: sy.State) -> Any:
        s.factor("y", 0.0)
        return first(s)

    without, with_one = (
        sy.evaluate(
            sy.algorithms.smc(transition, guide, YS[:length], initial=start, keep=["z"], threshold=0.7),
            jax.random.key(2),
            particles=12,
        )
        for start in (first, with_a_factor)
    )
    for a, b in zip(jax.tree.leaves(without), jax.tree.leaves(with_one), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_filter_that_begins_without_observations_is_properly_weighted() -> None:
    """Also where only some particles observe."""

    def coin(s: sy.State) -> Any:
        return s.sample("z", dist.Bernoulli(0.3))

    def step(q: Any, y: Any) -> Any:
        def toss(s: sy.State, z: Any) -> Any:
            z = s.sample("z", dist.Bernoulli(0.2 + 0.5 * z))
            with s.when(z == 1):
                s.factor("y", y * (0.7 * z - 0.4))
            return z

        return sy.move(toss, sy.resample(q))

    q = sy.scan(step, coin, jnp.array([1.0, -0.5]), keep=["z"])
    sy.testing.assert_properly_weighted(q, particles=2)
