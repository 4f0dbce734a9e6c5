"""Subsample and aggregate (Smith 2008; Dwork, Smith 2010; winsorised mean and quantile of Smith 2011)."""

from math import isqrt

import numpy as np
from numpy.random import Generator

from commingle.party_agent.private.regression.calibration import Calibration, Privacy, require_calibration
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.shared.dp.accounting import Loss

SOUND = frozenset({Calibration.PUBLISHED})
GUARANTEE = "epsilon-DP: one row is in one block, and each coordinate spends epsilon/d on the blocks' coefficients."
_WIDENING = 4.0
_EXPONENT = 1 / 3 + 0.1


def subagg_loss(privacy: Privacy) -> Loss:
    """What `subagg` costs: epsilon, and nothing of delta; public."""
    require_calibration(privacy, SOUND)
    return Loss.approximate(privacy.epsilon)


def subagg(
    sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0, blocks: int | None = None
) -> Estimate:
    """Least squares on disjoint blocks, then a noisy widened-winsorised mean of every coordinate.

    Privacy: epsilon-DP under add_remove and replace_one alike: every row goes to a block of its own draw, so a
    neighbour changes one block's coefficients, cut to [-R, R]. The number of blocks is public; by default n over
    max(2 d, sqrt(n)). Floating-point noise.
    """
    loss = subagg_loss(privacy)
    n, d = sample.n, sample.d
    count = max(1, n // max(2 * d, isqrt(n), 1)) if blocks is None else blocks
    member = generator.integers(count, size=n)
    fits = np.array([_least_squares(sample.x[member == b], sample.y[member == b]) for b in range(count)])
    cut = np.clip(fits, -radius, radius)
    share = privacy.epsilon / d
    theta = [_winsorised_mean(cut[:, j], share, radius, generator) for j in range(d)]
    return Estimate(np.array(theta), loss)


def _least_squares(x: Floats, y: Floats) -> Floats:
    return np.linalg.lstsq(x, y)[0].astype(np.float64) if len(y) else np.zeros(x.shape[1])


def _winsorised_mean(values: Floats, epsilon: float, radius: float, generator: Generator) -> float:
    """Smith 2011, algorithm 1: epsilon/4 for each quartile, epsilon/2 for the mean over the widened range."""
    k = len(values)
    low, high = (noisy_quantile(values, q, epsilon / 4, radius, generator) for q in (0.25, 0.75))
    centre, reach = (low + high) / 2, _WIDENING * k**_EXPONENT * abs(high - low)
    floor, ceiling = max(-radius, centre - reach), min(radius, centre + reach)
    # one value moves the mean by (ceiling - floor) / k
    scale = 2 * (ceiling - floor) / (epsilon * k)
    return float(np.clip(values, floor, ceiling).mean() + generator.laplace(scale=scale))


def noisy_quantile(values: Floats, quantile: float, epsilon: float, radius: float, generator: Generator) -> float:
    """The exponential mechanism on [-R, R] (Smith 2011, algorithm 2): epsilon-DP if one value changes.

    Density exp(-epsilon/2 |rank - q k|): one value moves the rank of any point by one at most.
    """
    edges = np.concatenate([[-radius], np.sort(values), [radius]])
    widths = np.diff(edges)
    rank = np.arange(len(widths))
    open_ones = widths > 0
    logs = np.log(widths[open_ones]) - epsilon / 2 * np.abs(rank[open_ones] - quantile * len(values))
    weights = np.exp(logs - logs.max())
    chosen = generator.choice(rank[open_ones], p=weights / weights.sum())
    return float(generator.uniform(edges[chosen], edges[chosen + 1]))
