"""Plain least squares on the release: RMGM-OLS and BGM-OLS of Wu et al. 2022."""

import numpy as np

from services.estimation.linear_algebra import inverse
from services.estimation.prepared import Array
from services.estimation.signal import Signal
from services.estimation.system import System

RIDGE = 1e-5  # per subject, the paper's; the intercept included


def operator(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = (G_xx + 1e-5 n I)^-1, which is (G_xx/n + 1e-5 I)^-1 / n."""
    return inverse(system.xx + RIDGE * system.n * np.eye(len(system.xy)))
