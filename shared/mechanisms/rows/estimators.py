"""The estimators of noisy rows but `shrunken`, which has a module of its own (docs/design/estimation.md)."""

import numpy as np

from commingle.shared.estimation.estimator import CONSTANT, Estimator, Signal, inverse, linear
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import System
from commingle.shared.mechanisms.rows.shrunken import shrunken
from commingle.shared.mechanisms.rows.signal import noise_bound

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
