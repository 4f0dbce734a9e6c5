"""How well predictions tell who has the event, and how a level changes them."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from commingle.services.intervals import standard_errors
from commingle.services.models.outcome import Scalar
from commingle.services.models.score import PRIOR_DEVIATION, Design
from commingle.shared.estimation.entry_noise import Array


def unknown(covariance: Array) -> NDArray[np.bool_]:
    """Which coefficients are known no better than by their prior; never the intercept, as it changes no rank."""
    return np.append(False, ~(standard_errors(covariance)[1:] <= PRIOR_DEVIATION))


def auc(design: Design, outcome: Scalar, b: Array, covariance: Array, n: float) -> tuple[float, float] | None:
    """The AUC of predictions among the people of the release if they are calibrated, and its standard error.

    With K = P(score above a non-event's), M = P(score below an event's), AUC = E[w p K] / E[w p]. Probabilities are in
    order of scores, so to first order errors of b move the AUC through p alone; drawing people adds DeLong's variance.
    Errors of b also spread scores: t = tr(Cov(b) Cov(x)) of v = Var(x b) is no signal. By the binormal law
    AUC = Phi((1 - t / v) Phi^-1(AUC of the spread scores)). It is None if t >= v: scores may be noise alone.

    Leaves out people at levels whose coefficients are known no better than by their prior: their scores are noise. It
    is also None if all others have one score.
    """
    w = design.weights * (design.X[:, unknown(covariance)] == 0).all(axis=1)
    if not w.any():
        return None
    n *= float(w.sum() / design.weights.sum())
    eta, w = design.X @ b, w / w.sum()
    p = outcome.link_inverse(eta)
    events, others = w * p, w * (1 - p)
    share = float(events.sum())
    _, at = np.unique(np.round(eta, 9), return_inverse=True)
    if not at[w > 0].size or np.ptp(at[w > 0]) == 0:
        return None
    K, M = _below(others, at) / (1 - share), 1 - _below(events, at) / share
    value = float(events @ K) / share
    by_p = w * ((K - value) / share - (M - value) / (1 - share))
    gradient = design.X.T @ (by_p * p * (1 - p))
    drawn = float(events @ (K - value) ** 2) / share**2 + float(others @ (M - value) ** 2) / (1 - share) ** 2
    mean = w @ design.X
    spread = (design.X * w[:, None]).T @ design.X - np.outer(mean, mean)
    kept = 1 - float(np.sum(spread * covariance)) / max(float(b @ spread @ b), 1e-12)
    if kept <= 0:
        return None
    error = float(np.sqrt(max(gradient @ covariance @ gradient + drawn / n, 0.0)))
    return float(ndtr(kept * ndtri(value))), error


def _below(mass: Array, at: NDArray[np.intp]) -> Array:
    each = np.bincount(at, weights=mass)
    return np.asarray((np.cumsum(each) - each / 2)[at])


def marginal_effects(design: Design, outcome: Scalar, b: Array, covariance: Array) -> tuple[Array, Array]:
    """Mean change of the expected outcome, (p,), if everybody had a level and not the first; and its errors.

    Errors are those of b; NaN for the intercept.
    """
    X, w = design.X, design.weights / design.weights.sum()
    values, slopes, before = np.full(len(b), np.nan), np.zeros(X.T.shape), np.zeros(X.T.shape)
    linear = X @ b
    for block in design.blocks:
        without = linear - X[:, block] @ b[block]
        low = outcome.link_inverse(without)
        before[block] = w * outcome.variance(low)
        for term in range(block.start, block.stop):
            high = outcome.link_inverse(without + b[term])
            values[term] = w @ (high - low)
            slopes[term] = w * outcome.variance(high)
    gradients = X.T @ (slopes - before).T
    for block in design.blocks:
        gradients[block, block] = np.diag(slopes[block].sum(axis=1))
    found = standard_errors(gradients.T @ covariance @ gradients)
    found[0] = np.nan
    return values, found
