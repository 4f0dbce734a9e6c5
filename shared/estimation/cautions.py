"""What a reader of a fit must be told, in plain language."""

import math

from commingle.shared.estimation.diagnostics import Diagnostics
from commingle.shared.estimation.estimators import ESTIMATORS
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System

SIGNAL_ERRORS = 3.0  # of ln(feature_root), above 0
SIGNIFICANCE = 0.05


def cautions(
    system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
) -> tuple[str, ...]:
    """Warnings about one fit; `determined` says whether the estimator's operator is positive definite."""
    chosen = ESTIMATORS[estimator]
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
            f"(feature_root {signal.feature_root:.2f}, 1 is none): coefficients and standard errors are unreliable. "
            "Name fewer features."
        )
    if not determined:
        found.append(
            "More noise was subtracted than the release contains in some direction: these coefficients mean nothing "
            "and get no standard errors. Use measurement_error."
        )
    if chosen.errors == "none":
        found.append(biased(estimator))
    if chosen.damping is not None and (damped := chosen.damping(system, signal)) > 0:
        found.append(f"The features were damped by {damped / system.n:.3g} n to keep the noise out.")
    return tuple(found)


def biased(estimator: str) -> str:
    """Why an estimator has no standard errors."""
    return f"{estimator} is for prediction: it is biased on purpose and has no standard errors."


def enough_signal(rows: int) -> float:
    """The least feature_root to be trusted, exp(3 sqrt(2/m)) for m rows: 1.28 at 300, 1.09 at 2,000, 1.004 at 10^6.

    A root of m normal rows is known to a relative error of about sqrt(2/m). Nearer to 1 than three of these,
    measurement_error was measured to lose against ols; beyond, its intervals hold what they promise (docs/coverage.md).
    """
    return math.exp(SIGNAL_ERRORS * math.sqrt(2 / rows))


def useless(system: System, d: Diagnostics) -> list[str]:
    """That a fit is no better than the constant predictor, if so."""
    reasons = []
    if d.f_p_value is not None and d.f_p_value > SIGNIFICANCE:
        reasons.append(f"F test p = {d.f_p_value:.2f}")
    if d.r_squared is None:
        reasons.append("no variance of the target is left once the noise is taken off")
    elif d.r_squared <= 0:
        reasons.append(f"expected R-squared {d.r_squared:.2f}")
    if not reasons:
        return []
    baseline = "predicting the mean of the target" if system.intercept else "predicting 0"
    return [f"This fit cannot be told from {baseline} ({'; '.join(reasons)})."]
