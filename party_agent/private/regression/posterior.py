"""One sample of a ridge posterior: what OPS and AdaOPS publish (Wang 2018, section 3; docs/proofs/regression.md, 4)."""

from math import sqrt

import numpy as np
from numpy.random import Generator
from scipy.special import ndtri

from commingle.party_agent.private.regression.problem import Floats, Sample


def ridge_fit(sample: Sample, ridge: float) -> Floats:
    """(X^T X + lambda I)^-1 X^T y; private rows, not to be published."""
    hessian = sample.x.T @ sample.x + ridge * np.eye(sample.d)
    return np.linalg.solve(hessian, sample.x.T @ sample.y).astype(np.float64)


def sample_posterior(sample: Sample, generator: Generator, *, ridge: float, inverse_variance: float) -> Floats:
    """Theta from density proportional to exp(-gamma/2 (||y - X theta||^2 + lambda ||theta||^2)).

    That is N(theta_hat, (gamma H)^-1), H = X^T X + lambda I = K K^T: theta_hat + K^-T z / sqrt(gamma).
    """
    root = np.linalg.cholesky(sample.x.T @ sample.x + ridge * np.eye(sample.d))
    noise = np.linalg.solve(root.T, generator.standard_normal(sample.d))
    return (ridge_fit(sample, ridge) + noise / sqrt(inverse_variance)).astype(np.float64)


def positive_root(square: float, linear: float, constant: float) -> float:
    """The positive root of a g^2 + b g = c for a, b >= 0 and c > 0: 2c / (b + sqrt(b^2 + 4ac))."""
    return 2 * constant / (linear + sqrt(linear**2 + 4 * square * constant))


def loss_tail(delta: float) -> float:
    """The t of `proved_root`: P(|Z| > t) <= delta, and t >= 1, which covers ln(1 + mu) in the loss of a removed row."""
    return max(1.0, -float(ndtri(delta / 2)))


def proved_root(*, residual: float, leverage: float, tail: float, epsilon: float) -> float:
    """Sqrt(gamma) that keeps the privacy loss of one posterior sample within epsilon.

    gamma R^2 mu / 2 + sqrt(gamma mu) R t + mu t^2 / 2 = epsilon, with |y - x^T theta_hat| <= R for the data at hand,
    mu >= C^2 / (lambda + lambda_min) for either neighbour and t = loss_tail(delta) (docs/proofs/regression.md, 4.3).
    Needs mu t^2 < 2 epsilon.
    """
    step = residual * sqrt(leverage)
    return positive_root(step**2 / 2, step * tail, epsilon - leverage * tail**2 / 2)
