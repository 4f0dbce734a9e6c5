"""What a reader of a fit of noisy moments must be told, in plain language."""

from commingle.shared.estimation.cautions import biased, useless
from commingle.shared.estimation.diagnostics import Diagnostics
from commingle.shared.estimation.noisy_moments.estimators import ESTIMATORS
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System

ENOUGH = 2.0  # times t; intervals were measured to cover 0.945 to 0.961 above 1.8 and to be too wide below


def cautions(
    system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
) -> tuple[str, ...]:
    """Warnings about one fit; `determined` says whether the estimator's operator is positive definite."""
    chosen = ESTIMATORS[estimator]
    found = useless(system, diagnostics) if chosen.uses_features else []
    ratio = diagnostics.signal_to_noise
    if not determined:
        found.append(
            "The noise outweighs the features in some direction: these coefficients mean nothing and get no standard "
            "errors. Name fewer features, or use adaptive_ridge or shrunken."
        )
    elif chosen.uses_features and chosen.errors != "none" and ratio is not None and ratio < ENOUGH:
        found.append(
            f"Some combination of the features varies only {ratio:.2g} times as much as the noise may "
            f"(signal_to_noise; {ENOUGH:g} is enough): coefficients are unstable and standard errors rough. "
            "Name fewer features, or use shrunken to predict."
        )
    if chosen.errors == "none":
        found.append(biased(estimator))
    if chosen.damping is not None and (damped := chosen.damping(system, signal)) > 0:
        found.append(
            f"The features were damped by {damped / system.n:.3g} n to keep the noise out: the coefficients are biased "
            "on purpose and get no standard errors. Use ols for those."
        )
    return tuple(found)
