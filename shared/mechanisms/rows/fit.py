"""How noisy rows are fitted, mixed (rmgm) or one per subject (dgm), and how much signal they have."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from commingle.shared.errors import SingularError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import (
    CONSTANT,
    FAILURE,
    Diagnostics,
    Errors,
    Estimator,
    FitMethod,
    IntervalFor,
    Residual,
    Signal,
    damped,
    inverse,
    largest_eigenvalue,
    linear,
)
from commingle.shared.estimation.system import Centred, System, centre
from commingle.shared.mechanisms.rows.shrunken import shrunken

_SIGNAL_ERRORS = 3.0  # of ln(feature_root), above 0
_TOLERANCE = 1e-12  # least 1 - R^2 of a term given the others
_RIDGE = 1e-5  # per subject, the paper's; the intercept included


def measure(system: System) -> Signal:
    """The facts about one system. Raises SingularError: one term is a linear combination of the others."""
    c = centre(system)
    q = len(c.g)
    if q == 0:
        return Signal(c, c.X, math.inf, math.inf, math.nan, math.nan, 0.0, 1.0)
    inverse = _invert(c.X, system)
    slopes = inverse @ c.g
    # a difference below rounding is rounding
    residual = max(c.yy - float(slopes @ c.g), np.finfo(float).eps * (system.yy or 1.0))
    eigenvalues = np.linalg.eigvalsh(c.X - c.rows * c.V)
    # inverse of the block over (x, y): X^-1 bordered by 0, plus c c^T / residual with c = (-slopes, 1)
    direction = np.append(-slopes, 1.0)
    joint = np.outer(direction, direction) / residual
    joint[:q, :q] += inverse
    over_both = system.root[system.intercept :]
    unexplained = residual if not c.v.any() else _unexplained(c, inverse)
    degrees = c.rows - q
    statistic = max(0.0, c.yy - unexplained) / q / (unexplained / degrees)
    return Signal(
        centred=c,
        inverse=inverse,
        root=_smallest_root(joint, over_both) / system.rows,
        feature_root=_smallest_root(inverse, c.root) / c.rows,
        smallest=float(eigenvalues[0]),
        largest=float(eigenvalues[-1]),
        f_statistic=statistic,
        f_p_value=float(fdtrc(q, degrees, statistic)),
    )


def enough_signal(rows: int) -> float:
    """The least feature_root to be trusted, exp(3 sqrt(2/m)) for m rows: 1.28 at 300, 1.09 at 2,000, 1.004 at 10^6.

    A root of m normal rows is known to a relative error of about sqrt(2/m). In measurements measurement_error loses
    against ols within three of these of 1; beyond, its intervals hold what they promise (docs/coverage.md).
    """
    return math.exp(_SIGNAL_ERRORS * math.sqrt(2 / rows))


def noise_bound(c: Centred) -> float:
    """The most that noise alone may add to the features' moment, above its mean (`bound_of`)."""
    return bound_of(top=largest_eigenvalue(c.V), trace=float(np.trace(c.V)), rows=c.rows)


def bound_of(*, top: float, trace: float, rows: int) -> float:
    """With probability 0.95 noise alone, of equal variances, has no eigenvalue above this.

    For m rows of noise with covariance V and v = lambda_max(V), ||N|| <= sqrt(m v) + sqrt(tr V) + sqrt(2 ln(1/0.05) v)
    with that probability (Gordon 1985; Davidson and Szarek 2001); it is the square of that less m v.
    """
    norm = math.sqrt(rows * top) + math.sqrt(trace) + math.sqrt(2 * math.log(1 / FAILURE) * top)
    return norm**2 - rows * top


def _unexplained(c: Centred, inverse: Array) -> float:
    """The part of the label that the signal alone leaves: yy - d^T (X + m^2 v v^T / yy)^-1 d with d = g - m v.

    If the noise of label and features shares v, their cross moment of m rows has mean m v and covariance X yy / m + m v
    v^T without any signal; without v this is the residual of least squares.
    """
    d, w = c.g - c.rows * c.v, inverse @ c.v
    explained = d @ inverse @ d - (d @ w) ** 2 / (c.yy / c.rows**2 + c.v @ w)  # Sherman-Morrison
    return max(c.yy - float(explained), np.finfo(float).eps * c.yy)


def _smallest_root(inverse: Array, root: Array) -> float:
    """Smallest r with det(Z - r F F^T) = 0, given Z^-1. Columns without noise drop out by themselves."""
    if root.shape[1] == 0:
        return math.inf
    # r = 1 / lambda_max(F^T Z^-1 F)
    largest = np.linalg.eigvalsh(root.T @ inverse @ root)[-1]
    return 1 / float(largest) if largest > 0 else math.inf


def _invert(X: Array, system: System) -> Array:
    try:
        inverse = np.asarray(np.linalg.inv(X), dtype=np.float64)
    except np.linalg.LinAlgError:
        inverse = np.full_like(X, np.nan)
    # 1 / (X_jj (X^-1)_jj) = 1 - R_j^2, the part of term j that the others do not explain, whatever the units
    with np.errstate(divide="ignore", invalid="ignore"):
        unexplained = 1 / (np.diag(X) * np.diag(inverse))
    if not (unexplained > _TOLERANCE).all():
        at_fault = system.terms[int(np.argmin(unexplained)) + system.intercept]
        raise SingularError(
            f"{at_fault} cannot be told from a linear combination of the other terms",
            remedy="Leave it, or a term that it follows from, out of the features.",
        )
    return inverse


def ols(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = (G_xx + 1e-5 n I)^-1: plain least squares on the release, RMGM-OLS and BGM-OLS of Wu et al. 2022."""
    return inverse(system.xx + _RIDGE * system.n * np.eye(len(system.xy)))


def debiased(system: System, signal: Signal) -> Array:  # noqa: ARG001 - as above
    """H = (G_xx - k V_xx + 1e-5 n I)^-1: the expected noise subtracted, DGM-OLS of Wu et al. 2022.

    If noise outweighs signal it is indefinite and the fit is useless.
    """
    return inverse(system.xx + _RIDGE * system.n * np.eye(len(system.xy)) - system.rows * system.V_xx)


def measurement_error(system: System, signal: Signal) -> Array:
    """H = (G_xx - a k V_xx)^-1: positive definite, because a < l.

    Regression with known error variances (Fuller 1987, ch. 2): consistent, with finite moments.
    """
    return inverse(system.xx - subtracted(system, signal) * system.rows * system.V_xx)


def subtracted(system: System, signal: Signal) -> float:
    """The a = min(1, l - 1/k) - p_x/k of docs/design/estimation.md#measurement_error."""
    k, p = system.rows, len(system.xy)
    return min(1.0, signal.root - 1 / k) - p / k


ESTIMATORS: dict[str, Estimator] = {
    "measurement_error": Estimator(linear(measurement_error, subtracted), "noisy_regressors"),
    "shrunken": Estimator(linear(shrunken), "none"),
    "ols": Estimator(linear(ols, lambda *_: 0.0), "plain"),
    "debiased": Estimator(linear(debiased), "noisy_regressors"),
    "adaptive_ridge": damped(lambda _, signal: noise_bound(signal.centred), "none"),
    "constant": CONSTANT,
}


@dataclass(frozen=True, slots=True)
class RowFit(FitMethod):
    """Fits of P^T P for published rows P that behave like draws of a normal law.

    `mixed` says whether rows vary around the table as random mixtures do; otherwise they are the table's own.
    """

    mixed: bool

    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:
        # Over the projection and the noise, or for the population of dgm also over its rows.
        # Mixed, and plain for the population:  G_xx tau2 + k Vc Vc^T,  tau2 = c^T G c / (k - p_x), Vc = V_x. c.
        # Plain for the table:                  G_xx nu2 + (c^T S_hat c) V_xx + n Vc Vc^T,  nu2 = c^T V c.
        # A plain regression on the release:    G_xx tau2, its residual being uncorrelated with its terms.
        tau2 = r.total / system.degrees_of_freedom
        if errors == "plain":
            return system.xx * tau2
        attenuation = system.rows * np.outer(r.spread, r.spread)
        if errors == "noisy_regressors" and not self.mixed and interval_for == "table":
            return system.xx * r.noise + max(0.0, r.signal) * system.V_xx + attenuation
        return system.xx * tau2 + attenuation

    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:  # noqa: ARG002 - as asked of all
        # Mixed: residual variance / n times H. Plain rows are draws from the population already.
        return (max(0.0, r.signal) / system.n if self.mixed else 0.0) * H

    def sampling(self, *, rows: int, n: int, interval_for: IntervalFor) -> float:
        # Mixed rows do not vary with the population; plain rows of the table do not vary at all.
        if self.mixed:
            return 1 / n if interval_for == "population" else 0.0
        return -1 / rows if interval_for == "table" else 0.0

    def noise_level(self, system: System, signal: Signal) -> float:  # noqa: ARG002 - as asked of all
        return largest_eigenvalue(signal.centred.V)

    def label_moment(self, system: System, c: Centred) -> float:
        return system.rows * (c.yy / c.rows - system.v_yy)

    def loss_variance(self, system: System, c: Centred, r: Residual, *, ratio: float, cross: float) -> float:
        # Cov(c^T G c, d^T G d) = 2 (c^T G d)^2 / k for rows of a normal law.
        return 2 / system.rows * (r.total**2 - 2 * ratio * cross**2 + (ratio * c.yy) ** 2)

    def cautions(
        self,
        system: System,
        signal: Signal,
        estimator: str,
        diagnostics: Diagnostics,  # noqa: ARG002 - as asked of all
        *,
        determined: bool,
    ) -> Iterator[str]:
        if estimator == "ols" and system.V_xx.any():
            yield (
                "The noise in the release pulls the coefficients of ols towards zero. Its intervals describe the noisy "
                "release: they do not cover the coefficients of the private table. Use measurement_error for those."
            )
        errors = self.estimators[estimator].errors
        if errors == "noisy_regressors" and signal.feature_root < enough_signal(signal.centred.rows):
            yield (
                "Some combination of the features carries hardly any signal above the noise "
                f"(feature_root {signal.feature_root:.2f}, 1 is none): coefficients and any standard errors are "
                "unreliable. Name fewer features."
            )
        if not determined:
            yield (
                "More noise was subtracted than the release contains in some direction: these coefficients mean "
                "nothing and get no standard errors. Use measurement_error."
            )


PLAIN_ROWS = RowFit(ESTIMATORS, "measurement_error", measure, mixed=False)
MIXED_ROWS = RowFit(ESTIMATORS, "measurement_error", measure, mixed=True)
