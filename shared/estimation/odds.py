"""The prior odds of signal: as large as what is lost without any allows (docs/proofs/prediction.md)."""

import math

import numpy as np
from scipy.special import expit

from commingle.shared.estimation.prepared import Array

NULL_LOSS = 0.024  # of R^2, on average over releases of a table without signal
MOST_ODDS = 9.0  # no signal is never given less than a tenth
_LEAST_LOG_ODDS = -20.0


def largest_log_odds(log_bayes: Array, lost: Array) -> float:
    """The largest log odds o, up to those of MOST_ODDS, whose fits lose at most NULL_LOSS without signal.

    Of fits of releases without signal: logarithms of their Bayes factors for signal, and the R^2 that each would lose
    if signal were certain, both of one shape. A fit that is multiplied by P loses P^2 of that, P = 1 / (1 + 1 / (o B)).
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - loads slowly, and no other estimator needs it

    def excess(log_odds: float) -> float:
        return float(np.mean(expit(log_bayes + log_odds) ** 2 * lost)) - NULL_LOSS

    most = math.log(MOST_ODDS)
    if excess(most) <= 0:
        return most
    if excess(_LEAST_LOG_ODDS) >= 0:
        return _LEAST_LOG_ODDS
    return float(brentq(excess, _LEAST_LOG_ODDS, most, xtol=1e-3))
