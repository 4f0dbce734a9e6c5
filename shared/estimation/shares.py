"""Shares of an event in the population, their differences and ratios, from counts of a release: the intervals.

Counts have noise of known covariance N, and people are drawn besides. Intervals of shares are Wilson's (1927) with that
noise. Those of differences (Newcombe, 1998) and ratios (Donner and Zou, 2012) follow from their ends, so that few
events leave them wide on the side where the truth may be. Ratios are Fieller's (1954): unbounded where they are.
"""

from math import inf, sqrt
from typing import Any

import numpy as np

from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.entry_noise import Array


def fieller(x: float, y: float, covariance: Array, z: float) -> tuple[float, float]:
    """The ends of the non-negative r with (x - r y)^2 <= z^2 Var(x - r y), infinite if there is no end.

    y estimates a number that is not negative; the covariance, (2, 2), is of the errors of both, z a normal quantile. If
    noise leaves no such r, because x is far below zero, it is the interval of x = 0: it never claims that r is zero.
    """
    (vx, c), (_, vy) = (z * z * covariance).tolist()
    # a r^2 - 2 b r + d <= 0
    a, b, d = y * y - vy, x * y - c, x * x - vx
    spread = b * b - a * d
    if spread < 0:  # every r; none only where rounding says so
        return 0.0, inf
    roots = sorted(((b - sqrt(spread)) / a, (b + sqrt(spread)) / a)) if a else (d / (2 * b) if b else 0.0, inf)
    low, high = roots
    if a > 0 and y > 0:
        return (max(low, 0.0), high) if high > 0 or x >= 0 else fieller(0.0, y, covariance, z)
    return (0.0 if low > 0 or a == 0 else max(high, 0.0)), inf


def mapped(jacobian: Array, covariance: Array) -> Array:
    """J C J^T: the covariance of a smooth function of errors, to first order."""
    return np.asarray(jacobian @ covariance @ jacobian.T)


def compared(cells: Cells, event: int, base: int, z: float) -> dict[str, Array]:
    """Shares of the event, their differences and ratios, of each level of rows against one (`against`)."""
    each = [against(cells, (i, base), event, z) for i in range(len(cells.rows))]
    return {name: np.array([found[name] for found in each], np.float64) for name in each[0]}


def wilson(e: float, n: float, noise: Array, z: float) -> tuple[float, float]:
    """The ends of the r with (e - r n)^2 <= z^2 (Var(noise of e - r n) + n r (1 - r)), which may lie beyond 0 and 1.

    e of n people have an event, and `noise`, (2, 2), is the covariance of the noise in both; z is a normal quantile.
    Infinite if noise hides whether there are people.
    """
    (vee, ven), (_, vnn) = (z * z * noise).tolist()
    # a r^2 - 2 b r + d <= 0
    a, b, d = n * n - vnn + z * z * n, e * n - ven + z * z * n / 2, e * e - vee
    spread = b * b - a * d
    if n <= 0 or a <= 0:
        return -inf, inf
    if spread < 0:  # no r: e is so far out that it counts as the nearest count
        return (e / n, e / n) if 0 <= e <= n else wilson(min(max(e, 0.0), n), n, noise, z)
    return (b - sqrt(spread)) / a, (b + sqrt(spread)) / a


def share_of(e: float, n: float, noise: Array, z: float) -> tuple[float, tuple[float, float]]:
    """The share e / n and the ends of its interval (`wilson`), within 0 and 1; NaN without people."""
    low, high = (min(max(end, 0.0), 1.0) for end in wilson(e, n, noise, z))
    return (min(max(e / n, 0.0), 1.0) if n > 0 else float("nan")), (low, high)


def against(cells: Cells, rows: tuple[int, int], event: int, z: float) -> dict[str, Any]:
    """Shares, differences and ratios of row i against row j, from (e_i, n_i, e_j, n_j), those with the event and all.

    `rows` are i and j, `event` is the column whose shares are compared, and z a quantile of the normal law.
    """
    i, j = rows
    with_event, everybody = np.eye(len(cells.columns))[event], np.ones(len(cells.columns))
    weights = np.eye(len(cells.rows))[[i, j]], np.array([with_event, everybody])
    found_sums, C = cells.sums(*weights)
    N, (e1, n1, e0, n0) = cells.noise.of(*weights).covariance, found_sums.ravel().tolist()
    share, ends = share_of(e1, n1, N[:2, :2], z)
    found = {"shares": share, "share_intervals": np.array(ends)}
    unknown = {"differences": (np.nan, -1.0, 1.0), "ratios": (np.nan, 0.0, inf), "odds_ratios": (np.nan, 0.0, inf)}
    if i == j:
        unknown = dict.fromkeys(unknown, (np.nan, np.nan, np.nan))
    elif min(n1, n0) > 0:
        p1, p0 = e1 / n1, e0 / n0
        # d p = (d e - p d n) / n
        V = mapped(np.array([[1 / n1, -p1 / n1, 0, 0], [0, 0, 1 / n0, -p0 / n0]]), C)
        both = wilson(e1, n1, N[:2, :2], z), wilson(e0, n0, N[2:, 2:], z)
        unknown = _differing(p1, p0, _sides((p1, p0), both, V) if np.isfinite(both).all() else None)
    singular = {"differences": "difference", "ratios": "ratio", "odds_ratios": "odds"}
    for name, (value, low, high) in unknown.items():
        found[name] = value
        found[f"{singular[name]}_intervals"] = np.array([low, high])
    return found


def _sides(shares: tuple[float, float], ends: tuple[tuple[float, float], tuple[float, float]], V: Array) -> list[Array]:
    """Covariances (2, 2), times z^2, of p_1 and p_0 for the lower and the upper end of what rises with p_1.

    With ends l and u of each share, the lower one takes p_1 - l_1 and u_0 - p_0 for z standard errors, the upper one
    u_1 - p_1 and p_0 - l_0. V, by the delta method, has the correlation.
    """
    (p1, p0), ((l1, u1), (l0, u0)) = shares, ends
    spread = sqrt(V[0, 0] * V[1, 1])
    correlation = V[0, 1] / spread if spread > 0 else 0.0
    sides = [np.maximum([p1 - l1, u0 - p0], 0.0), np.maximum([u1 - p1, p0 - l0], 0.0)]
    return [np.outer(side, side) * np.array([[1.0, correlation], [correlation, 1.0]]) for side in sides]


def _differing(p1: float, p0: float, sides: list[Array] | None) -> dict[str, tuple[float, float, float]]:
    # the odds ratio is x / y, x = p_1 (1 - p_0), y = p_0 (1 - p_1)
    x, y, K = p1 * (1 - p0), p0 * (1 - p1), np.array([[1 - p0, -p1], [-p0, 1 - p1]])
    difference, ratio, odds = p1 - p0, max(p1 / p0, 0.0) if p0 > 0 else np.nan, max(x / y, 0.0) if y > 0 else np.nan
    low, high, ratios, all_odds = -inf, inf, (0.0, inf), (0.0, inf)
    if sides is not None:
        below, above = (sqrt(max(side[0, 0] - 2 * side[0, 1] + side[1, 1], 0.0)) for side in sides)
        low, high = difference - below, difference + above
        ratios, all_odds = _ends(p1, p0, sides), _ends(x, y, [mapped(K, side) for side in sides])
    return {
        "differences": (float(np.clip(difference, -1.0, 1.0)), max(low, -1.0), min(high, 1.0)),
        "ratios": (ratio, *ratios),
        "odds_ratios": (odds, *all_odds),
    }


def _ends(x: float, y: float, sides: list[Array]) -> tuple[float, float]:
    return fieller(x, y, sides[0], 1.0)[0], fieller(x, y, sides[1], 1.0)[1]
