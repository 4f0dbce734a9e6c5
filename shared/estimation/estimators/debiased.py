"""Least squares with the expected noise subtracted: DGM-OLS of Wu et al. 2022."""

import numpy as np

from commingle.shared.estimation.estimators.ols import RIDGE
from commingle.shared.estimation.linear_algebra import inverse
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System


def operator(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = (G_xx - k V_xx + 1e-5 n I)^-1; where noise outweighs signal it is indefinite and the fit is useless."""
    return inverse(system.xx + RIDGE * system.n * np.eye(len(system.xy)) - system.rows * system.V_xx)
