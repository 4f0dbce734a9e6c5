"""The estimators of estimation.md, one module each.

Every one of them is linear in G_xy given G_xx, V, k and n: b = H G_xy. A module says what H is; the coefficients,
their covariance and the expected loss all follow from it in the same way for all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from services.estimation.estimators import (
    adaptive_ridge,
    constant,
    debiased,
    measurement_error,
    ols,
    shrunken,
)
from services.estimation.prepared import Array
from services.estimation.signal import Signal
from services.estimation.system import System

Errors = Literal["noisy_regressors", "plain", "none"]


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator and what can be said about its errors.

    Attributes:
        operator: H, (p_x, p_x), of a system.
        errors: `noisy_regressors`: standard errors around the private table or the population;
            `plain`: those of a regression on the noisy release; `none`: it is biased on purpose, so none.
        uses_features: False for the label mean.
    """

    operator: Callable[[System, Signal], Array]
    errors: Errors
    uses_features: bool = True


ESTIMATORS: dict[str, Estimator] = {
    "measurement_error": Estimator(measurement_error.operator, "noisy_regressors"),
    "shrunken": Estimator(shrunken.operator, "none"),
    "ols": Estimator(ols.operator, "plain"),
    "debiased": Estimator(debiased.operator, "noisy_regressors"),
    "adaptive_ridge": Estimator(adaptive_ridge.operator, "none"),
    "constant": Estimator(constant.operator, "noisy_regressors", uses_features=False),
}
