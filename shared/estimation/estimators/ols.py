"""Plain least squares on the release: RMGM-OLS and BGM-OLS of Wu et al. 2022."""

import numpy as np

from commingle.shared.estimation.linear_algebra import inverse
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System

RIDGE = 1e-5  # per subject, the paper's; the intercept included


def operator(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = (G_xx + 1e-5 n I)^-1, which is (G_xx/n + 1e-5 I)^-1 / n."""
    return inverse(system.xx + RIDGE * system.n * np.eye(len(system.xy)))
