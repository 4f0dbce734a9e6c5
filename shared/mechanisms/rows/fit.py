"""How noisy rows are fitted, mixed (rmgm) or one per subject (dgm)."""

from dataclasses import dataclass

import numpy as np

from commingle.shared.estimation.diagnostics import biased, useless
from commingle.shared.estimation.estimator import (
    CONSTANT,
    Errors,
    Estimator,
    Signal,
    inverse,
    largest_eigenvalue,
    linear,
)
from commingle.shared.estimation.method import Diagnostics, FitMethod, Residual
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.estimation.system import Centred, System
from commingle.shared.mechanisms.rows.shrunken import shrunken
from commingle.shared.mechanisms.rows.signal import enough_signal, measure, noise_bound

_RIDGE = 1e-5  # per subject, the paper's; the intercept included


def ols(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = (G_xx + 1e-5 n I)^-1: plain least squares on the release, RMGM-OLS and BGM-OLS of Wu et al. 2022."""
    return inverse(system.xx + _RIDGE * system.n * np.eye(len(system.xy)))


def debiased(system: System, signal: Signal) -> Array:  # noqa: ARG001 - as above
    """H = (G_xx - k V_xx + 1e-5 n I)^-1: the expected noise subtracted, DGM-OLS of Wu et al. 2022.

    Where noise outweighs signal it is indefinite and the fit is useless.
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


def adaptive_ridge(system: System, signal: Signal) -> Array:
    """H of (S_hat_xx + l I)^-1, the features centred, with the intercept it implies, which is not damped itself.

    Least squares damped no more than the noise requires, as AdaSSP does (Wang 2018), after the fact.
    """
    c = signal.centred
    return c.with_intercept(inverse(c.X + damping(system, signal) * np.eye(len(c.X)) - c.rows * c.V))


def damping(system: System, signal: Signal) -> float:  # noqa: ARG001 - as above
    """The l of H: max(0, t - lambda_min(S_hat_xx))."""
    return max(0.0, noise_bound(signal.centred) - signal.smallest)


def _none(system: System, signal: Signal) -> float:  # noqa: ARG001 - as above
    return 0.0


ESTIMATORS: dict[str, Estimator] = {
    "measurement_error": Estimator(linear(measurement_error, subtracted), "noisy_regressors"),
    "shrunken": Estimator(linear(shrunken), "none"),
    "ols": Estimator(linear(ols, _none), "plain"),
    "debiased": Estimator(linear(debiased), "noisy_regressors"),
    "adaptive_ridge": Estimator(linear(adaptive_ridge), "none", damping=damping),
    "constant": CONSTANT,
}


@dataclass(frozen=True, slots=True)
class RowFit(FitMethod):
    """Fits of P^T P for published rows P that behave like draws of a normal law.

    Attributes:
        mixed: whether rows vary around the table as random mixtures do; otherwise they are the table's own.
    """

    mixed: bool

    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:
        """Over the projection and the noise, or for the population of dgm also over its rows.

        Mixed, and plain for the population:  G_xx tau2 + k Vc Vc^T,  tau2 = c^T G c / (k - p_x), Vc = V_x. c.
        Plain for the table:                  G_xx nu2 + (c^T S_hat c) V_xx + n Vc Vc^T,  nu2 = c^T V c.
        A plain regression on the release:    G_xx tau2, its residual being uncorrelated with its terms.
        """
        tau2 = r.total / system.degrees_of_freedom
        if errors == "plain":
            return system.xx * tau2
        attenuation = system.rows * np.outer(r.spread, r.spread)
        if errors == "noisy_regressors" and not self.mixed and interval_for == "table":
            return system.xx * r.noise + max(0.0, r.signal) * system.V_xx + attenuation
        return system.xx * tau2 + attenuation

    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:  # noqa: ARG002 - as asked of all
        """Mixed: residual variance / n times H. Plain rows are draws from the population already."""
        return (max(0.0, r.signal) / system.n if self.mixed else 0.0) * H

    def sampling(self, *, rows: int, n: int, interval_for: IntervalFor) -> float:
        """Mixed rows do not vary with the population; plain rows of the table do not vary at all."""
        if self.mixed:
            return 1 / n if interval_for == "population" else 0.0
        return -1 / rows if interval_for == "table" else 0.0

    def noise_level(self, system: System, signal: Signal) -> float:  # noqa: ARG002 - as asked of all
        """lambda_max(V_xx)."""
        return largest_eigenvalue(signal.centred.V)

    def label_moment(self, system: System, c: Centred) -> float:
        """Scaled from m = k - 1 rows to k."""
        return system.rows * (c.yy / c.rows - system.v_yy)

    def loss_variance(self, system: System, c: Centred, r: Residual, *, ratio: float, cross: float) -> float:
        """Cov(c^T G c, d^T G d) = 2 (c^T G d)^2 / k for rows of a normal law."""
        return 2 / system.rows * (r.total**2 - 2 * ratio * cross**2 + (ratio * c.yy) ** 2)

    def cautions(
        self, system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
    ) -> tuple[str, ...]:
        """What a reader of a fit must be told, in plain language."""
        chosen = self.estimators[estimator]
        noisy = bool(system.V_xx.any())
        found = []
        if chosen.uses_features:
            found += useless(system, diagnostics)
        if estimator == "ols" and noisy:
            found.append(
                "The noise in the release pulls the coefficients of ols towards zero. Its intervals describe the noisy "
                "release: they do not cover the coefficients of the private table. Use measurement_error for those."
            )
        if chosen.errors == "noisy_regressors" and signal.feature_root < enough_signal(signal.centred.rows):
            found.append(
                "Some combination of the features carries hardly any signal above the noise "
                f"(feature_root {signal.feature_root:.2f}, 1 is none): coefficients and standard errors are "
                "unreliable. Name fewer features."
            )
        if not determined:
            found.append(
                "More noise was subtracted than the release contains in some direction: these coefficients mean "
                "nothing and get no standard errors. Use measurement_error."
            )
        if chosen.errors == "none":
            found.append(biased(estimator))
        if chosen.damping is not None and (damped := chosen.damping(system, signal)) > 0:
            found.append(f"The features were damped by {damped / system.n:.3g} n to keep the noise out.")
        return tuple(found)


PLAIN_ROWS = RowFit(ESTIMATORS, "measurement_error", measure, mixed=False)
MIXED_ROWS = RowFit(ESTIMATORS, "measurement_error", measure, mixed=True)
