"""What all attacks of the privacy audit share (`benchmarks.privacy_audit`)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from commingle.party_agent.private.digest import TableDigest
from commingle.shared.dp.gaussian import gaussian_epsilon
from commingle.shared.dp.noise import rounded_gaussian

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
    return rounded_gaussian(max(1, sigma // 2), count)


def centred(apart: float, noise: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A linear statistic on both tables, less the value half-way between them: noise, and so far apart without it."""
    return noise - apart / 2, noise + apart / 2


def epsilon_bound(without: NDArray[np.float64], within: NDArray[np.float64], *, alpha: float = ALPHA) -> float:
    """The epsilon at DELTA that the attack demonstrates, from its statistic on either table as of `centred`.

    Each rate is bounded by itself, so that the two tables' runs need not be independent.
    """
    runs = len(without)
    hits, alarms = int(np.sum(within > 0)), int(np.sum(without > 0))
    true_rate = beta.ppf(alpha, hits, runs - hits + 1)
    false_rate = beta.ppf(1 - alpha, alarms + 1, runs - alarms)
    separation = max(float(norm.ppf(true_rate) - norm.ppf(false_rate)), 0.0)
    return gaussian_epsilon(separation**2 / 2, DELTA)
