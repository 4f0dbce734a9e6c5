"""How much signal noisy rows have about one regression: what estimators weigh and diagnostics report."""

import math

import numpy as np
from scipy.special import fdtrc

from commingle.shared.estimation.errors import SingularError
from commingle.shared.estimation.estimator import FAILURE, Signal, largest_eigenvalue
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import Centred, System, centre

_SIGNAL_ERRORS = 3.0  # of ln(feature_root), above 0
_TOLERANCE = 1e-12  # least 1 - R^2 of a term given the others


def measure(system: System) -> Signal:
    """The facts about one system.

    Raises:
        SingularError: one term is a linear combination of the others.
    """
    c = centre(system)
    q = len(c.g)
    degrees = c.rows - q
    if q == 0:
        return Signal(c, c.X, math.inf, math.inf, math.nan, math.nan, 0.0, degrees, 1.0)
    inverse = _invert(c.X, system)
    slopes = inverse @ c.g
    # what cancels to less than rounding is rounding
    residual = max(c.yy - float(slopes @ c.g), np.finfo(float).eps * (system.yy or 1.0))
    eigenvalues = np.linalg.eigvalsh(c.X - c.rows * c.V)
    # inverse of the block over (x, y): X^-1 bordered by 0, plus c c^T / residual with c = (-slopes, 1)
    direction = np.append(-slopes, 1.0)
    joint = np.outer(direction, direction) / residual
    joint[:q, :q] += inverse
    over_both = system.root[system.intercept :]
    unexplained = residual if not c.v.any() else _unexplained(c, inverse)
    statistic = max(0.0, c.yy - unexplained) / q / (unexplained / degrees)
    return Signal(
        centred=c,
        inverse=inverse,
        root=_smallest_root(joint, over_both) / system.rows,
        feature_root=_smallest_root(inverse, c.root) / c.rows,
        smallest=float(eigenvalues[0]),
        largest=float(eigenvalues[-1]),
        f_statistic=statistic,
        f_degrees=degrees,
        f_p_value=float(fdtrc(q, degrees, statistic)),
    )


def enough_signal(rows: int) -> float:
    """The least feature_root to be trusted, exp(3 sqrt(2/m)) for m rows: 1.28 at 300, 1.09 at 2,000, 1.004 at 10^6.

    A root of m normal rows is known to a relative error of about sqrt(2/m). Nearer to 1 than three of these,
    measurement_error was measured to lose against ols; beyond, its intervals hold what they promise (docs/coverage.md).
    """
    return math.exp(_SIGNAL_ERRORS * math.sqrt(2 / rows))


def noise_bound(c: Centred) -> float:
    """What noise alone may show in the features' moment, above its mean (`bound_of`)."""
    return bound_of(top=largest_eigenvalue(c.V), trace=float(np.trace(c.V)), rows=c.rows)


def bound_of(*, top: float, trace: float, rows: int) -> float:
    """With probability 0.95 noise alone, of equal variances, has no eigenvalue above this.

    For m rows of noise with covariance V and v = lambda_max(V), ||N|| <= sqrt(m v) + sqrt(tr V) + sqrt(2 ln(1/0.05) v)
    with that probability (Gordon 1985; Davidson and Szarek 2001); it is the square of that less m v.
    """
    norm = math.sqrt(rows * top) + math.sqrt(trace) + math.sqrt(2 * math.log(1 / FAILURE) * top)
    return norm**2 - rows * top


def _unexplained(c: Centred, inverse: Array) -> float:
    """What the signal alone leaves of the label: yy - d^T (X + m^2 v v^T / yy)^-1 d with d = g - m v.

    Where the noise of label and features shares v, their cross moment of m rows has mean m v and covariance
    X yy / m + m v v^T without any signal; without v this is the residual of least squares.
    """
    d, w = c.g - c.rows * c.v, inverse @ c.v
    explained = d @ inverse @ d - (d @ w) ** 2 / (c.yy / c.rows**2 + c.v @ w)  # Sherman-Morrison
    return max(c.yy - float(explained), np.finfo(float).eps * c.yy)


def _smallest_root(inverse: Array, root: Array) -> float:
    """Smallest r with det(Z - r F F^T) = 0, given Z^-1. Columns without noise drop out by themselves."""
    if root.shape[1] == 0:
        return math.inf
    # r = 1 / lambda_max(F^T Z^-1 F)
    largest = np.linalg.eigvalsh(root.T @ inverse @ root)[-1]
    return 1 / float(largest) if largest > 0 else math.inf


def _invert(X: Array, system: System) -> Array:
    try:
        inverse = np.asarray(np.linalg.inv(X), dtype=np.float64)
    except np.linalg.LinAlgError:
        inverse = np.full_like(X, np.nan)
    # 1 / (X_jj (X^-1)_jj) = 1 - R_j^2, the part of term j that the others do not explain, whatever the units
    with np.errstate(divide="ignore", invalid="ignore"):
        unexplained = 1 / (np.diag(X) * np.diag(inverse))
    if not (unexplained > _TOLERANCE).all():
        at_fault = system.terms[int(np.argmin(unexplained)) + system.intercept]
        raise SingularError(
            f"{at_fault} cannot be told from a linear combination of the other terms",
            remedy="Leave it, or a term that it follows from, out of the features.",
        )
    return inverse
