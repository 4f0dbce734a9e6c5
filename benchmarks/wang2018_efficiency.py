"""How near SSP, AdaSSP and AdaOPS come to least squares as n grows (Wang 2018, figure 3), and what is the default here.

x ~ N(0, I_10), theta_0 ~ U[0, 1]^10, y = x theta_0 + N(0, 1); ||X|| and ||Y|| are the largest row norm and label of
the draw, which reads private rows. Up to 2^16 rows are drawn one by one; above, X^T X from its Wishart law, X^T y given
X^T X from its normal law, and the two maxima from their own laws, as if independent of the sums.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.stats import chi, norm, wishart

from benchmarks.wang2018_methods import FROM_SUMS, PRIVATE, published
from commingle.party_agent.private.regression.problem import Floats, Sample

D = 10
SIZES = tuple(40 * 2**power for power in range(20))
_ROW_BY_ROW = 2**16


def simulated(n: int, draw: Generator, *, d: int = D) -> tuple[Sample, Floats]:
    """A sample of d rows with the X^T X and X^T y of n drawn rows, and theta_0.

    The methods compared read a sample's two sums and bounds only; K^T and K^-1 X^T y have the same sums, K K^T = X^T X.
    """
    theta = draw.uniform(0, 1, d)
    if n <= _ROW_BY_ROW:
        x = draw.normal(size=(n, d))
        y = x @ theta + draw.normal(size=n)
        gram, cross = x.T @ x, x.T @ y
        longest, largest = float(np.linalg.norm(x, axis=1).max()), float(np.abs(y).max())
    else:
        gram = np.asarray(wishart(n, np.eye(d)).rvs(random_state=draw))
        cross = gram @ theta + np.linalg.cholesky(gram) @ draw.normal(size=d)
        # P(max <= t) = F(t)^n, so F(max) = u^(1/n), with 1 - u^(1/n) = -expm1(ln u / n)
        above = -np.expm1(np.log(draw.uniform(size=2)) / n)
        longest = float(chi(d).isf(above[0]))
        largest = sqrt(1 + float(theta @ theta)) * float(norm.isf(above[1] / 2))
    root = np.linalg.cholesky(gram)
    return Sample(root.T.astype(np.float64), np.linalg.solve(root, cross).astype(np.float64), longest, largest), theta


def efficiency(sizes: Sequence[int], epsilons: Sequence[float], *, trials: int) -> list[dict[str, Any]]:
    """Mean squared errors ||theta - theta_0||^2 of least squares and of the methods; delta = 1/n^2."""
    fits = {"SSP": PRIVATE["SSP"], "AdaSSP": PRIVATE["AdaSSP"], "AdaOPS": PRIVATE["AdaOPS"], **FROM_SUMS}
    cells = []
    for n in sizes:
        squares: dict[str, list[float]] = {}
        for trial in range(trials):
            draw = np.random.default_rng([n, trial])
            sample, truth = simulated(n, draw)
            found = {"OLS": np.linalg.solve(sample.x.T @ sample.x, sample.x.T @ sample.y)}
            for epsilon in epsilons:
                for name, fit in fits.items():
                    found[f"{name}, ε = {epsilon:g}"] = fit(sample, published(epsilon, 1 / n**2), draw)
            for name, theta in found.items():
                squares.setdefault(name, []).append(float(np.sum((theta - truth) ** 2)))
        cells.append({"n": n, "mean_squared_error": {name: float(np.mean(v)) for name, v in squares.items()}})
    return cells
