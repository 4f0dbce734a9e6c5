"""Joint shares of two attributes with less error than counts on average: never negative, with one margin everywhere.

Empirical Bayes (Efron and Morris, 1973): what a table has beyond independence is shrunk by how much of it is noise. The
price is a bias towards no association, so intervals and tests are of the unbiased counts (docs/questions.md).
"""

import numpy as np

from commingle.shared.estimation.balance import level_shares
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array

_LEAST, _STEPS = 1e-5, 121
_ROUNDS = 50
_TINY = np.finfo(np.float64).tiny


def joint_shares(sums: CrossProducts, row: str, column: str, cells: Cells) -> Array:
    """(L1, L2) shares of everybody with each pair of levels, with sum 1, for the table of two attributes.

    Its margins are the shares r and s of each attribute among all people of its member, whatever it is crossed with.
    """
    r, s = (_law(level_shares(sums, name)) for name in (row, column))
    return _with_margins(np.outer(r, s) + _departures(cells, r, s), r, s)


def _law(shares: Array) -> Array:
    """Shares without those below 0, with sum 1: all alike where noise leaves none."""
    found = np.maximum(shares, 0.0) if (shares > 0).any() else np.ones_like(shares)
    return np.asarray(found / found.sum())


def _departures(cells: Cells, r: Array, s: Array) -> Array:
    """E[k | D] D with k = t q / (t q + v), for D of N(0, t q + v) in each cell and the root of t uniform up to 1.

    Cells are not independent: they count as their degrees of freedom, (L1 - 1)(L2 - 1).
    D = (I - r' 1') c (I - 1 s'') / T with the counts' own margins r' and s'', v its noise, q = r s (1 - r)(1 - s).
    """
    total = max(float(cells.counts.sum()), 1.0)
    A, B = (
        np.eye(len(sums)) - np.outer(sums / total, np.ones(len(sums)))
        for sums in (cells.counts.sum(axis=1), cells.counts.sum(axis=0))
    )
    D, v = A @ cells.counts @ B.T / total, cells.noise.of(A, B).variances / total**2
    q = np.outer(r * (1 - r), s * (1 - s))
    free = (len(r) - 1) * (len(s) - 1) / D.size
    steps = np.geomspace(_LEAST, 1.0, _STEPS).tolist()

    def surprise(t: float) -> float:
        variance = np.maximum(t * q + v, _TINY)
        return float(free * np.sum(np.log(variance) + D**2 / variance) - np.log(t))

    found = np.array([surprise(t) for t in steps])
    chances = np.exp((found.min() - found) / 2)
    kept = sum(chance * t * q / np.maximum(t * q + v, _TINY) for chance, t in zip(chances, steps, strict=True))
    return np.asarray(kept / chances.sum() * D)


def _with_margins(shares: Array, r: Array, s: Array) -> Array:
    """The shares above 0 that have these margins: rows and columns are scaled in turn (Deming and Stephan, 1940)."""
    found = np.maximum(shares, 0.0)
    for _ in range(_ROUNDS):
        found *= (r / np.maximum(found.sum(axis=1), _TINY))[:, None]
        found *= s / np.maximum(found.sum(axis=0), _TINY)
    return np.asarray(found / found.sum())
