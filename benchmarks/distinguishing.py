"""What all attacks of the privacy audit share (`benchmarks.privacy_audit`)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from party_agent.private.digest import TableDigest
from shared.privacy.calibration import epsilon_of_rho
from shared.privacy.noise import discrete_gaussian

DELTA = 1e-5
SUBJECTS = 40
SAMPLED = 100
ALPHA = 0.0005
"""The chance that a bound of one rate is wrong."""


@dataclass(frozen=True, slots=True)
class Debited:
    """Stands for a ledger's debit: an audit spends nobody's budget."""

    release: str
    rho_units: int
    table: TableDigest


def halved(sigma: int, count: int) -> NDArray[np.int64]:
    """A broken sampler: half the noise."""
    return discrete_gaussian(max(1, sigma // 2), count)


def epsilon_bound(without: NDArray[np.float64], within: NDArray[np.float64], *, alpha: float = ALPHA) -> float:
    """The epsilon at DELTA that the attack demonstrates; the threshold lies half-way, whatever the data."""
    runs, threshold = len(without), float(np.mean([without.mean(), within.mean()]))
    hits, alarms = int(np.sum(within > threshold)), int(np.sum(without > threshold))
    true_rate = beta.ppf(alpha, hits, runs - hits + 1)
    false_rate = beta.ppf(1 - alpha, alarms + 1, runs - alarms)
    separation = max(float(norm.ppf(true_rate) - norm.ppf(false_rate)), 0.0)
    return epsilon_of_rho(separation**2 / 2, DELTA)
