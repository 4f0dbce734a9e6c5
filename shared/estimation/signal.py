"""How much signal a release has about one regression: what estimators weigh and diagnostics report."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from commingle.shared.estimation.errors import SingularError
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import Centred, System, centre

_TOLERANCE = 1e-12  # least 1 - R^2 of a term given the others


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """Facts about a system that no estimator changes.

    Attributes:
        centred: the system with the intercept partialled out, q features.
        inverse: (q, q) X^-1.
        root: l, the smallest root of det(G - l k V) = 0 over (x, y); infinite without noise.
        feature_root: l_x, the smallest root of X against its degrees of freedom times V_xx; infinite without noise.
        smallest, largest: eigenvalues of S_hat_xx; NaN without features.
        f_statistic: of the release's own least squares against the mean (against 0 without intercept), what noise
            shared by label and features explains taken off.
        f_degrees: its second degrees of freedom.
        f_p_value: its tail probability; 1 without features.
    """

    centred: Centred
    inverse: Array
    root: float
    feature_root: float
    smallest: float
    largest: float
    f_statistic: float
    f_degrees: int
    f_p_value: float


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
