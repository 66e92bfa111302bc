"""The yardsticks themselves, against the joint density summed or written out."""

import itertools

import numpy as np
import scipy.stats

from tests.evidence.exact import forward_algorithm, kalman_filter

RNG = np.random.default_rng(0)


def test_forward_algorithm_sums_over_all_paths() -> None:
    initial, transition = RNG.dirichlet(np.ones(3)), RNG.dirichlet(np.ones(3), size=3)
    likelihood = RNG.random((4, 3))
    total = 0.0
    for path in itertools.product(range(3), repeat=4):
        steps = [transition[i, j] for i, j in itertools.pairwise(path)]
        total += initial[path[0]] * np.prod(steps) * np.prod(likelihood[range(4), path])
    np.testing.assert_allclose(forward_algorithm(initial, transition, likelihood), np.log(total))


def test_kalman_filter_gives_the_density_of_the_joint_gaussian() -> None:
    a, c = RNG.normal(size=(2, 2)), RNG.normal(size=(2, 2))
    p, q, r = (m @ m.T + 0.1 * np.eye(2) for m in RNG.normal(size=(3, 2, 2)))
    m, xs = RNG.normal(size=2), RNG.normal(size=(3, 2))
    # z = (z_1, A z_1 + e_2, A^2 z_1 + A e_2 + e_3) as a linear map of (z_1, e_2, e_3).
    zero, one = np.zeros((2, 2)), np.eye(2)
    path = np.block([[one, zero, zero], [a, one, zero], [a @ a, a, one]])
    noise = np.block([[p, zero, zero], [zero, q, zero], [zero, zero, q]])
    observe, error = np.kron(np.eye(3), c), np.kron(np.eye(3), r)
    mean = observe @ path @ np.concatenate([m, np.zeros(4)])
    covariance = observe @ path @ noise @ path.T @ observe.T + error
    exact = scipy.stats.multivariate_normal.logpdf(xs.reshape(-1), mean, covariance)
    np.testing.assert_allclose(kalman_filter(m, p, a, q, c, r, xs), exact)
