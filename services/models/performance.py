"""How well a generalised linear model does, over weighted rows: discrimination, marginal effects, calibration."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from commingle.services.models.outcome import Outcome, Scalar
from commingle.services.models.score import Design
from commingle.services.models.weighted_rows import ratios
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.prepared import Array


def auc(design: Design, outcome: Scalar, b: Array, covariance: Array, n: float) -> tuple[float, float]:
    """The AUC that predictions have among the people of the release if they are calibrated, and its standard error.

    With K = P(score above a non-event's), M = P(score below an event's), AUC = E[w p K] / E[w p]. Probabilities are in
    order of scores, so to first order errors of b move the AUC through p alone; people vary as DeLong says. Errors of b
    also make scores spread by t = tr(Cov(b) Cov(x)) of v = Var(x b), which is not signal: by the binormal law
    AUC = Phi((1 - t / v) Phi^-1(AUC of the spread scores)).
    """
    eta, w = design.X @ b, design.weights / design.weights.sum()
    p = outcome.link_inverse(eta)
    events, others = w * p, w * (1 - p)
    share = float(events.sum())
    _, at = np.unique(np.round(eta, 9), return_inverse=True)
    K, M = _below(others, at) / (1 - share), 1 - _below(events, at) / share
    value = float(events @ K) / share
    by_p = w * ((K - value) / share - (M - value) / (1 - share))
    gradient = design.X.T @ (by_p * p * (1 - p))
    drawn = float(events @ (K - value) ** 2) / share**2 + float(others @ (M - value) ** 2) / (1 - share) ** 2
    about = design.X - w @ design.X
    spread = (about * w[:, None]).T @ about
    kept = max(1 - float(np.sum(spread * covariance)) / max(float(b @ spread @ b), 1e-12), 0.0)
    error = float(np.sqrt(max(gradient @ covariance @ gradient + drawn / n, 0.0)))
    return float(ndtr(kept * ndtri(value))), error


def _below(mass: Array, at: NDArray[np.intp]) -> Array:
    """Of each row the mass of lower scores, and half of equal ones."""
    each = np.bincount(at, weights=mass)
    return np.asarray((np.cumsum(each) - each / 2)[at])


def marginal_effects(
    design: Design, outcome: Scalar, b: Array, covariance: Array, blocks: list[slice]
) -> tuple[Array, Array]:
    """Mean change of the expected outcome, (p,), if everybody had a level in place of the first; and its errors.

    Errors are those of b; NaN for the intercept.
    """
    X, w = design.X, design.weights / design.weights.sum()
    values, found = np.full(len(b), np.nan), np.full(len(b), np.nan)
    linear = X @ b
    for block in blocks:
        without = linear - X[:, block] @ b[block]
        low = outcome.link_inverse(without)
        slope = w * outcome.variance(low)
        for term in range(block.start, block.stop):
            high = outcome.link_inverse(without + b[term])
            values[term] = w @ (high - low)
            slopes = w * outcome.variance(high)
            gradient = X.T @ (slopes - slope)
            gradient[block] = 0.0
            gradient[term] = slopes.sum()
            found[term] = np.sqrt(max(gradient @ covariance @ gradient, 0.0))
    return values, found


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Mean outcomes by level.

    Attributes:
        expected: (t,) by the model.
        observed: (t,) as released.
        errors: (t,) of `observed`, noise and drawing.
        few: (t,) whether hardly anybody may have the event, or not have it.
    """

    expected: Array
    observed: Array
    errors: Array
    few: NDArray[np.bool_]


def calibration(
    sums: CrossProducts, design: Design, outcome: Outcome, b: Array, levels: tuple[Array, Array]
) -> Calibration:
    """Of t levels: (N, t) who has them, and (t, q) the same as combinations of columns."""
    who, columns = levels
    mu = outcome.mean(design.X, b)
    expected = (design.weights * mu) @ who / np.maximum(design.weights @ who, 1e-12)
    with_event, with_outcome = products(columns, outcome.value[None]), products(columns, outcome.known[None])
    observed, forms = ratios(sums, with_event, with_outcome)
    people, _ = _counted(sums, with_outcome)
    variance = np.diag(sums.covariance(forms)) + outcome.variance(expected) / np.maximum(people, 1.0)
    few = np.zeros(len(columns), np.bool_)
    if outcome.family == "binomial":
        for form in (with_event, with_outcome - with_event):
            count, error = _counted(sums, form)
            few |= count < _SURE * np.sqrt(error**2 + np.maximum(count, 1.0))
    return Calibration(expected, observed, np.sqrt(np.maximum(variance, 0.0)), few)


_SURE = 3.0


def _counted(sums: CrossProducts, forms: Array) -> tuple[Array, Array]:
    counts, covariance = sums.sums(forms)
    return counts, np.sqrt(np.maximum(np.diag(covariance), 0.0))
