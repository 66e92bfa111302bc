"""Equations between programs, as documentation: what may be rewritten into what.

Both sides run with the same key and must give the same particles, if not said otherwise.
"""

from random import Random

import jax
import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import steelyard as sy
from steelyard.language.addresses import variable
from steelyard.language.programs import Program
from steelyard.types import Method
from tests.laws.comparison import assert_same, assert_same_particles, log_density
from tests.laws.finite import Table
from tests.laws.inference import METHODS
from tests.laws.primitives import Need, extended, kernel, target
from tests.laws.strategies import Example, apart, examples
from tests.laws.structure import domain, keeps

laws = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
# Without filters, which have no target.
programs = st.sampled_from((1, 3)).flatmap(examples).map(lambda example: example.q).filter(lambda q: not keeps(q))
randoms = st.randoms(use_true_random=True)
IDENTITY = Table((), returns="argument")


def run(q: Program) -> sy.Evaluation:
    """Evaluate a program. Examples in which no particle has a weight are left out."""
    with jax.enable_x64(True):
        try:
            return sy.evaluate(q, jax.random.key(3), 1, particles=4, engine="universal")
        except sy.WeightError:
            assume(False)
            raise


def _apart_from(q: Program) -> Need:
    return Need(avoid=frozenset(map(variable, domain(q).all)))


@laws
@given(apart(3))
def test_compose_is_associative(parts: tuple[Program, ...]) -> None:
    q1, q2, q3 = parts
    assert_same(run(sy.compose(q3, sy.compose(q2, q1))), run(sy.compose(sy.compose(q3, q2), q1)))


@laws
@given(programs)
def test_the_identity_composed_after_a_program_changes_nothing(q: Program) -> None:
    assert_same(run(sy.compose(IDENTITY, q)), run(q))


@laws
@given(programs)
def test_rename_is_undone_by_its_inverse(q: Program) -> None:
    known = sorted(domain(q).all)
    # The first two change places, the others get new names: any bijection will do.
    new = [*known[1:2], *known[:1], *(f"new {a.rstrip('′')} {i}" for i, a in enumerate(known[2:]))]
    there = dict(zip(known, new, strict=True))
    back = {b: a for a, b in there.items()}
    assert_same(run(sy.rename(sy.rename(q, there), back)), run(q))


@laws
@given(randoms)
def test_rename_commutes_with_propose(rng: Random) -> None:
    p = kernel(rng, Need())
    q = kernel(rng, Need(positive=True, wanted=tuple(domain(p).sizes)))
    new = {a: f"new {i}" for i, a in enumerate(sorted(domain(p).all | domain(q).all))}
    ours, theirs = ({a: new[a] for a in domain(f).all} for f in (p, q))
    assert_same(run(sy.propose(sy.rename(p, ours), sy.rename(q, theirs))), run(sy.rename(sy.propose(p, q), ours)))


@laws
@given(randoms)
def test_prev_is_a_rename(rng: Random) -> None:
    f = kernel(rng, Need())
    assert_same(run(sy.prev(f)), run(sy.rename(f, {a: sy.previous(a) for a in domain(f).all})))


@laws
@given(programs)
def test_target_is_idempotent(q: Program) -> None:
    """As trees: what is left of a program when its proposals and resamplings are taken away."""
    assert sy.target(sy.target(q)) == sy.target(q)
    assert sy.target(sy.resample(q)) == sy.target(q)


@laws
@given(randoms)
def test_marginal_undoes_extend(rng: Random) -> None:
    """As trees."""
    p = target(rng, Need())
    assert sy.marginal(extended(rng, p, Need())) == sy.marginal(p)
    assert sy.marginal(sy.marginal(p)) == sy.marginal(p)
    assert sy.target(sy.propose(p, p)) == sy.marginal(p)


@laws
@given(randoms)
def test_extend_runs_like_compose(rng: Random) -> None:
    p = target(rng, Need())
    f = kernel(rng, _apart_from(p), observes=False)
    assert_same(run(sy.extend(p, f)), run(sy.compose(f, p)))


@laws
@given(programs, randoms)
def test_move_of_no_variable_is_compose(q: Program, rng: Random) -> None:
    f = kernel(rng, _apart_from(q))
    assert_same(run(sy.move(f, q)), run(sy.compose(f, q)))


@laws
@given(programs, st.sampled_from(METHODS))
def test_resample_keeps_the_evidence(q: Program, method: Method) -> None:
    log_z = run(q).log_z
    np.testing.assert_allclose(run(sy.resample(q, method=method)).log_weight, log_z, atol=1e-12)
    np.testing.assert_allclose(run(sy.resample(sy.resample(q, method=method))).log_weight, log_z, atol=1e-12)


@laws
@given(programs, st.sampled_from((0.5, 1.0)), st.sampled_from(METHODS))
def test_a_threshold_lets_equal_weights_pass(q: Program, threshold: float, method: Method) -> None:
    equal = sy.resample(q)
    assert_same(run(sy.resample(equal, threshold=threshold, method=method)), run(equal))


@laws
@given(randoms)
def test_a_target_that_proposes_for_itself_keeps_its_weights(rng: Random) -> None:
    """All variables cancel, and the likelihood is left."""
    p = target(rng, Need())
    np.testing.assert_allclose(run(sy.propose(p, p)).log_weight, run(p).log_weight, atol=1e-12)
    f = kernel(rng, Need())
    assert_same_particles(run(sy.propose(f, f)), run(f))


@laws
@given(randoms)
def test_a_proposal_of_other_variables_is_likelihood_weighting(rng: Random) -> None:
    """Everything that p needs is missing, and everything that is proposed is superfluous."""
    p = kernel(rng, Need())
    out = run(sy.propose(p, kernel(rng, _apart_from(p), observes=False)))
    prior = sum((np.where(out.trace.present(a), out.log_density[a], 0.0) for a in out.trace), np.zeros(out.particles))
    np.testing.assert_allclose(out.log_weight, log_density(out) - prior, atol=1e-12)


@laws
@given(st.sampled_from((1, 2)).flatmap(lambda particles: examples(particles, runs=1000)))
def test_probabilities_of_outcomes_sum_to_one(example: Example) -> None:
    outcomes = sy.testing.enumerate(example.q, example.argument, particles=example.particles)
    np.testing.assert_allclose(sum(probability for probability, _ in outcomes), 1.0, rtol=1e-12)
