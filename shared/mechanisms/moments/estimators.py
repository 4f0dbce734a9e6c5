"""The estimators of noisy moments, from which nothing is to be subtracted (docs/design/estimation.md#noisy-moments)."""

import numpy as np

from commingle.shared.estimation.estimator import CONSTANT, Estimator, Signal, inverse, linear
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import System
from commingle.shared.mechanisms.moments.shrunken import shrunken
from commingle.shared.mechanisms.moments.signal import entries_of, noise_bound


def ols(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = S_hat_xx^-1."""
    return inverse(system.xx)


def adaptive_ridge(system: System, signal: Signal) -> Array:
    """H of (X + l I)^-1, l = `damping`, with the intercept it implies."""
    X = signal.centred.X
    return signal.centred.with_intercept(inverse(X + damping(system, signal) * np.eye(len(X))))


def damping(system: System, signal: Signal) -> float:
    """The l of H, max(0, t - lambda_min(X)): no eigenvalue is left below the bound on its noise."""
    return max(0.0, noise_bound(entries_of(system), signal.centred) - signal.smallest)


ESTIMATORS: dict[str, Estimator] = {
    "ols": Estimator(linear(ols), "noisy_regressors"),
    "shrunken": Estimator(shrunken, "none"),
    "adaptive_ridge": Estimator(linear(adaptive_ridge), "noisy_regressors", damping=damping),
    "constant": CONSTANT,
}
