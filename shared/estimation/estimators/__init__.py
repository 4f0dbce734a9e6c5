"""The estimators of estimation.md, one module each.

Every one of them is linear in the cross moments given G_xx, V, k and n: b = H (G_xy - a k v_xy), where v_xy is what
the noise of the terms and that of the label share: 0 unless one party whitened both. A module says what H is; the
coefficients, their covariance and the expected loss all follow from it in the same way for all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from commingle.shared.estimation.estimators import adaptive_ridge, constant, debiased, measurement_error, ols, shrunken
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System

Errors = Literal["noisy_regressors", "plain", "none"]


def _all(system: System, signal: Signal) -> float:  # noqa: ARG001 - all estimators have one signature
    return 1.0


def _none(system: System, signal: Signal) -> float:  # noqa: ARG001 - as above
    return 0.0


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator and what can be said about its errors.

    Attributes:
        operator: H, (p_x, p_x), of a system.
        errors: `noisy_regressors`: standard errors around the private table or the population;
            `plain`: those of a regression on the noisy release; `none`: it is biased on purpose, so none.
        uses_features: False for the label mean.
        damping: how much it damped the features, if it does so only where it must: what is damped is biased and has
            no standard errors.
        subtracted: a, the share of the shared noise that is taken off; the estimator's own share of V_xx where its
            coefficients are to be exact, all of it where they are damped towards 0.
    """

    operator: Callable[[System, Signal], Array]
    errors: Errors
    uses_features: bool = True
    damping: Callable[[System, Signal], float] | None = None
    subtracted: Callable[[System, Signal], float] = _all


ESTIMATORS: dict[str, Estimator] = {
    "measurement_error": Estimator(
        measurement_error.operator, "noisy_regressors", subtracted=measurement_error.subtracted
    ),
    "shrunken": Estimator(shrunken.operator, "none"),
    "ols": Estimator(ols.operator, "plain", subtracted=_none),
    "debiased": Estimator(debiased.operator, "noisy_regressors"),
    "adaptive_ridge": Estimator(adaptive_ridge.operator, "none", damping=adaptive_ridge.damping),
    "constant": Estimator(constant.operator, "noisy_regressors", uses_features=False),
}
