"""Exact evidence of state-space models, in NumPy."""

import numpy as np


def forward_algorithm(initial: np.ndarray, transition: np.ndarray, likelihood: np.ndarray) -> float:
    """Return log p(x_1, ..., x_T) of a hidden Markov model.

    Args:
        initial: p(z_1 = i).
        transition: p(z_t = j | z_{t-1} = i) in row i and column j.
        likelihood: p(x_t | z_t = i) in row t and column i.
    """
    log_evidence, predicted = 0.0, initial
    for row in likelihood:
        joint = predicted * row
        log_evidence += np.log(joint.sum())
        predicted = joint / joint.sum() @ transition
    return float(log_evidence)


def kalman_filter(
    mean: np.ndarray,
    covariance: np.ndarray,
    transition: np.ndarray,
    process_noise: np.ndarray,
    emission: np.ndarray,
    observation_noise: np.ndarray,
    xs: np.ndarray,
) -> float:
    """Return log p(x_1, ..., x_T) where z_1 ~ N(mean, covariance), z_t = A z_{t-1} + noise and x_t = C z_t + noise."""
    log_evidence = 0.0
    for t, x in enumerate(xs):
        if t > 0:
            mean, covariance = transition @ mean, transition @ covariance @ transition.T + process_noise
        innovation = x - emission @ mean
        spread = emission @ covariance @ emission.T + observation_noise
        log_evidence -= 0.5 * (
            innovation @ np.linalg.solve(spread, innovation) + np.linalg.slogdet(2 * np.pi * spread)[1]
        )
        gain = covariance @ emission.T @ np.linalg.inv(spread)
        mean, covariance = mean + gain @ innovation, covariance - gain @ emission @ covariance
    return float(log_evidence)
