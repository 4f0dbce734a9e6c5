"""Means and covariances that a forecast takes for granted."""

import numpy as np

from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute
from commingle.shared.planning.design import Array, PartyDesign
from commingle.shared.planning.errors import PlanningError

_ROUNDING = 1e-9


def uniform_law(shares: tuple[PartyDesign, ...]) -> tuple[Array, Array]:
    """Mean (p - 1,) and covariance of encoded attributes that are independent and uniform on their bounds or levels.

    Numbers have variance 1/3, two levels 1, indicators of L levels (delta_ij - 1/L) / L. A row norm C scales a party's
    columns by min(1, C / root mean square norm of its rows). Whitened columns have mean 0 and variance C^2 / d.
    """
    means, blocks = [], []
    for share in shares:
        if share.whitening is not None:
            d = len(share.columns)
            means.append(np.zeros(d))
            blocks.append(np.eye(d) * (share.row_norm or 0.0) ** 2 / d)
            continue
        mean = np.concatenate([_mean(a) for a in share.attributes])
        block = _block_diagonal([_covariance(a) for a in share.attributes])
        norm = float(np.sqrt(np.trace(block) + mean @ mean))
        gain = 1.0 if share.row_norm is None else min(1.0, share.row_norm / norm)
        means.append(gain * mean)
        blocks.append(gain**2 * block)
    return np.concatenate(means), _block_diagonal(blocks)


def table_law(second_moments: Array, *, columns: int) -> tuple[Array, Array]:
    """The same from (p, p) moments A^T A / n of a public table, the intercept first.

    Raises:
        PlanningError: not a symmetric matrix of that size with entries in [-1, 1] and 1 in its corner.
    """
    shape = (columns + 1, columns + 1)
    if (
        second_moments.shape != shape
        or not (np.abs(second_moments) <= 1 + _ROUNDING).all()
        or not np.allclose(second_moments, second_moments.T)
        or not np.isclose(second_moments[0, 0], 1)
    ):
        raise PlanningError(
            f"the second moments are not a symmetric matrix of {columns + 1} columns in [-1, 1] with 1 in its corner",
            remedy="Give A^T A / n of encoded rows, the intercept first.",
        )
    mean = second_moments[0, 1:]
    return mean, second_moments[1:, 1:] - np.outer(mean, mean)


def _mean(attribute: Attribute) -> Array:
    levels = attribute.levels if isinstance(attribute, CategoricalAttribute) else ()
    return np.full(len(attribute.columns), 1 / len(levels) if levels else 0.0)


def _covariance(attribute: Attribute) -> Array:
    if isinstance(attribute, CategoricalAttribute):
        levels = len(attribute.levels)
        return np.eye(levels - 1) / levels - 1 / levels**2
    return np.array([[1.0 if isinstance(attribute, BinaryAttribute) else 1 / 3]])


def _block_diagonal(blocks: list[Array]) -> Array:
    ends = np.cumsum([0, *map(len, blocks)])
    whole = np.zeros((ends[-1], ends[-1]))
    for start, block in zip(ends, blocks, strict=False):
        whole[start : start + len(block), start : start + len(block)] = block
    return whole
