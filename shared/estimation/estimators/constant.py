"""The label mean: the baseline every private fit is compared with."""

import numpy as np

from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System


def operator(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = 1 / G_11, the intercept being the only term."""
    return np.reciprocal(system.xx)
