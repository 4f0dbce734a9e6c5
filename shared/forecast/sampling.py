"""What a public sample of few rows leaves open: populations that such a sample may come from.

A regression fitted to m rows explains more of them than of anybody else. Under a normal law and a g-prior of the slopes
(Zellner 1986) with a factor s of shrinkage of density 1/(1 - s) (the hyper-g prior of Liang et al. 2008, a = 2), given
the sample's R^2 of q features and the variance yy of its label:

    p(s) ~ (1 - s)^(q/2 - 1) (1 - s R^2)^(-(m-1)/2),
    residual | s ~ m yy (1 - s R^2) / chi^2_(m-1),
    b | s, residual ~ N(s b_hat, (s residual / m) xx^-1).

On average the explained part is about that of the adjusted R^2. The covariance of the features is drawn apart from b,
as that of m rows of a normal law whose covariance is the sample's.
"""

from dataclasses import replace
from math import sqrt

import numpy as np

from commingle.shared.mechanisms.prediction import Array, RegressionTask

COVERED = 0.9  # by the 2nd least to the 2nd largest of 39, or by the least to the largest of 19
_DRAWS, _DRAWS_OF_WIDE, _WIDE = 39, 19, 64
_SEED = 0
_LEFT = np.geomspace(1e-6, 1, 400)  # 1 - s, by steps that have a prior of the same size
_FACTORS = 1 - _LEFT
_NEARLY_ALL = 1 - 1e-9


def populations(task: RegressionTask, rows: int) -> tuple[RegressionTask, ...]:
    """Regressions of some populations that a sample of so many rows with this regression may come from."""
    draw = np.random.default_rng(_SEED)
    count = _DRAWS if len(task.b) <= _WIDE else _DRAWS_OF_WIDE
    return tuple(_drawn(task, rows, draw) for _ in range(count))


def ends(values: list[float]) -> tuple[int, int]:
    """Places of the two values that hold `COVERED` of the law between them, by their ranks."""
    order = np.argsort(values).tolist()
    beyond = round((1 - COVERED) / 2 * (len(order) + 1))
    return order[beyond - 1], order[-beyond]


def expected(task: RegressionTask, rows: int) -> RegressionTask:
    """The sample's regression with slopes that explain as much as those of the populations do on average."""
    weights, r_squared = _factors(task, rows)
    residual = rows * task.yy * (1 - _FACTORS * r_squared) / max(1, rows - 3)
    explained = _FACTORS**2 * r_squared * task.yy + _FACTORS * len(task.b) * residual / rows
    length = sqrt(float(weights @ explained) / (r_squared * task.yy)) if r_squared > 0 else 0.0
    return _with(task, task.xx, length * task.b, float(weights @ residual))


def _factors(task: RegressionTask, rows: int) -> tuple[Array, float]:
    """Weights of `_FACTORS`, and the R^2 of the sample, a little below 1."""
    r_squared = min(task.r_squared, _NEARLY_ALL)
    log = len(task.b) / 2 * np.log(_LEFT) - (rows - 1) / 2 * np.log1p(-_FACTORS * r_squared)
    weights: Array = np.exp(log - log.max())
    return weights / weights.sum(), r_squared


def _drawn(task: RegressionTask, rows: int, draw: np.random.Generator) -> RegressionTask:
    weights, r_squared = _factors(task, rows)
    q, s = len(task.b), float(draw.choice(_FACTORS, p=weights))
    residual = rows * task.yy * (1 - s * r_squared) / draw.chisquare(rows - 1)
    root = np.linalg.cholesky(task.xx)
    b = s * task.b + sqrt(s * residual / rows) * np.linalg.solve(root.T, draw.normal(size=q))
    degrees = max(rows - 1, q + 2)  # fewer leave no inverse
    sample = root @ _wishart_root(q, degrees, draw)
    return _with(task, sample @ sample.T / degrees, b, residual)


def _wishart_root(q: int, degrees: int, draw: np.random.Generator) -> Array:
    """L with L L^T of a Wishart law of covariance I (Bartlett 1933): its size does not grow with the degrees."""
    lower = np.tril(draw.normal(size=(q, q)), -1)
    return np.asarray(lower + np.diag(np.sqrt(draw.chisquare(degrees - np.arange(q)))))


def _with(task: RegressionTask, xx: Array, b: Array, residual: float) -> RegressionTask:
    inverse = np.asarray(np.linalg.inv(xx), dtype=np.float64)
    return replace(task, xx=xx, inverse=inverse, b=b, yy=float(b @ xx @ b) + residual, residual=residual)
