"""Equations between programs, as documentation: what may be rewritten into what.

Both sides run with the same key and must give the same particles, if not said otherwise.
"""

from collections.abc import Callable
from random import Random

import jax
import numpy as np

import steelyard as sy
from steelyard.language.addresses import variable
from steelyard.language.programs import Program
from tests.laws.comparison import assert_same, assert_same_particles, log_density
from tests.laws.finite import Table
from tests.laws.inference import METHODS
from tests.laws.laws import PARTICLES
from tests.laws.primitives import Need, extended, kernel, target
from tests.laws.strategies import apart_from_each_other, example_from
from tests.laws.structure import domain, keeps

EXAMPLES = 36  # of each equation
IDENTITY = Table((), returns="argument")


def law(equation: Callable[[Random], None]) -> Callable[[], None]:
    """Try an equation on programs that are made of their numbers alone.

    Those in which no particle has a weight are left out.
    """

    def test() -> None:
        held = 0
        for number in range(EXAMPLES):
            try:
                equation(Random(f"{equation.__name__}, {number}"))
                held += 1
            except sy.WeightError:
                continue
            except Exception as problem:
                problem.add_note(f"program {number}")
                raise
        assert held > EXAMPLES / 2

    test.__doc__ = equation.__doc__
    return test


def run(q: Program) -> sy.Evaluation:
    with jax.enable_x64(True):
        return sy.evaluate(q, jax.random.key(3), 1, particles=PARTICLES, engine="universal")


def program(rng: Random) -> Program:
    """Return a program that is no filter, which has no target."""
    while keeps(q := example_from(rng, rng.choice((1, 3))).q):
        pass
    return q


def _apart_from(q: Program) -> Need:
    return Need(avoid=frozenset(map(variable, domain(q).all)))


@law
def test_compose_is_associative(rng: Random) -> None:
    q1, q2, q3 = apart_from_each_other(rng, 3)
    assert_same(run(sy.compose(q3, sy.compose(q2, q1))), run(sy.compose(sy.compose(q3, q2), q1)))


@law
def test_the_identity_composed_after_a_program_changes_nothing(rng: Random) -> None:
    q = program(rng)
    assert_same(run(sy.compose(IDENTITY, q)), run(q))


@law
def test_rename_is_undone_by_its_inverse(rng: Random) -> None:
    q = program(rng)
    known = sorted(domain(q).all)
    # The first two change places, the others get new names: any bijection will do.
    new = [*known[1:2], *known[:1], *(f"new {a.rstrip('′')} {i}" for i, a in enumerate(known[2:]))]
    there = dict(zip(known, new, strict=True))
    back = {b: a for a, b in there.items()}
    assert_same(run(sy.rename(sy.rename(q, there), back)), run(q))


@law
def test_rename_commutes_with_propose(rng: Random) -> None:
    p = kernel(rng, Need())
    q = kernel(rng, Need(positive=True, wanted=tuple(domain(p).sizes)))
    new = {a: f"new {i}" for i, a in enumerate(sorted(domain(p).all | domain(q).all))}
    ours, theirs = ({a: new[a] for a in domain(f).all} for f in (p, q))
    assert_same(run(sy.propose(sy.rename(p, ours), sy.rename(q, theirs))), run(sy.rename(sy.propose(p, q), ours)))


@law
def test_prev_is_a_rename(rng: Random) -> None:
    f = kernel(rng, Need())
    assert_same(run(sy.prev(f)), run(sy.rename(f, {a: sy.previous(a) for a in domain(f).all})))


@law
def test_target_is_idempotent(rng: Random) -> None:
    """As trees: what is left of a program when its proposals and resamplings are taken away."""
    q = program(rng)
    p = sy.target(q)
    assert sy.target(p) == p
    # As text: a scan makes its steps anew whenever it is asked for them.
    assert repr(sy.target(sy.resample(q))) == repr(p)


@law
def test_marginal_undoes_extend(rng: Random) -> None:
    """As trees."""
    p = target(rng, Need())
    assert sy.marginal(extended(rng, p, Need())) == sy.marginal(p)
    assert sy.marginal(sy.marginal(p)) == sy.marginal(p)
    assert sy.target(sy.propose(p, p)) == sy.marginal(p)


@law
def test_extend_runs_like_compose(rng: Random) -> None:
    p = target(rng, Need())
    f = kernel(rng, _apart_from(p), observes=False)
    assert_same(run(sy.extend(p, f)), run(sy.compose(f, p)))


@law
def test_move_of_no_variable_is_compose(rng: Random) -> None:
    q = program(rng)
    f = kernel(rng, _apart_from(q))
    assert_same(run(sy.move(f, q)), run(sy.compose(f, q)))


@law
def test_resample_keeps_the_evidence(rng: Random) -> None:
    q, method = program(rng), rng.choice(METHODS)
    log_z = run(q).log_z
    np.testing.assert_allclose(run(sy.resample(q, method=method)).log_weight, log_z, atol=1e-12)
    np.testing.assert_allclose(run(sy.resample(sy.resample(q, method=method))).log_weight, log_z, atol=1e-12)


@law
def test_a_threshold_lets_equal_weights_pass(rng: Random) -> None:
    equal = sy.resample(program(rng))
    threshold, method = rng.choice((0.5, 1.0)), rng.choice(METHODS)
    assert_same(run(sy.resample(equal, threshold=threshold, method=method)), run(equal))


@law
def test_a_target_that_proposes_for_itself_keeps_its_weights(rng: Random) -> None:
    """All variables cancel, and the likelihood is left."""
    p = target(rng, Need())
    np.testing.assert_allclose(run(sy.propose(p, p)).log_weight, run(p).log_weight, atol=1e-12)
    f = kernel(rng, Need())
    assert_same_particles(run(sy.propose(f, f)), run(f))


@law
def test_a_proposal_of_other_variables_is_likelihood_weighting(rng: Random) -> None:
    """Everything that p needs is missing, and everything that is proposed is superfluous."""
    p = kernel(rng, Need())
    out = run(sy.propose(p, kernel(rng, _apart_from(p), observes=False)))
    prior = sum((np.where(out.trace.present(a), out.log_density[a], 0.0) for a in out.trace), np.zeros(out.particles))
    np.testing.assert_allclose(out.log_weight, log_density(out) - prior, atol=1e-12)


@law
def test_probabilities_of_outcomes_sum_to_one(rng: Random) -> None:
    example = example_from(rng, rng.choice((1, 2)), runs=1000)
    outcomes = sy.testing.enumerate(example.q, example.argument, particles=example.particles)
    np.testing.assert_allclose(sum(probability for probability, _ in outcomes), 1.0, rtol=1e-12)
