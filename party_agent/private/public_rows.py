"""Whitenings and second moments of PUBLIC rows. Nothing here may ever be given a private row: both are published."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError
from commingle.party_agent.private.regression.problem import Floats, RowMap
from commingle.party_agent.private.rows import RawReader
from commingle.shared.documents.regression import PublicSecondMoments
from commingle.shared.documents.schema import Attribute, Whitening
from commingle.shared.dp.fixed_point import SCALE, WHITENED_LIMIT, IntegerMap, clip_rows, squared_row_limit
from commingle.shared.encoding import encode_rows

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class MadeWhitening:
    """A whitening and its effect on public rows. Its rows fill the unit ball, so it goes with `row_norm` 1.

    Attributes:
        condition_before, condition_after: of their covariance as encoded, and as whitened and clipped; None if they
            do not vary in some direction.
        clipped: share of the rows that `row_norm` 1 clips.
    """

    whitening: Whitening
    rows: int
    condition_before: float | None
    condition_after: float | None
    clipped: float


def make_whitening(
    read: RawReader, attributes: tuple[Attribute, ...], *, ridge: float, radius: float | None
) -> MadeWhitening:
    """The whitening (Sigma + ridge I)^-1/2 (x - m) / radius, m and Sigma mean and covariance of encoded public rows.

    The radius is that of the ball around m that stays whole, in standard deviations; sqrt(d), the root mean square of
    public rows, where left out.
    """
    q = _encode(read, attributes)
    if len(q) < 2:  # noqa: PLR2004 - a covariance takes two
        raise DataError(f"{len(q)} public rows say nothing about a covariance", remedy="Give more public rows.")
    x = q / SCALE
    centre = x.mean(axis=0)
    values, vectors = np.linalg.eigh(_covariance(x))
    matrix = (vectors / np.sqrt(np.maximum(values + ridge, _ROUNDING**2))) @ vectors.T / (radius or sqrt(len(centre)))
    mapped = IntegerMap.of(matrix.tolist(), centre.tolist()).rows(q)
    limit = squared_row_limit(1.0)
    return MadeWhitening(
        whitening=Whitening(centre=tuple(centre.tolist()), matrix=tuple(map(tuple, matrix.tolist()))),
        rows=len(q),
        condition_before=_condition(q),
        condition_after=_condition(clip_rows(mapped, limit, largest=WHITENED_LIMIT)),
        clipped=float(np.mean(np.sum(mapped**2, axis=1) > limit)),
    )


def _covariance(rows: Floats | NDArray[np.int64]) -> Floats:
    return np.asarray(np.cov(rows.T, bias=True), np.float64).reshape(rows.shape[1], -1)


def _condition(rows: NDArray[np.int64]) -> float | None:
    values = np.linalg.eigvalsh(_covariance(rows))
    return float(values[-1] / values[0]) if values[0] > _ROUNDING * values[-1] else None


def _encode(read: RawReader, attributes: tuple[Attribute, ...]) -> NDArray[np.int64]:
    batches = [encode_rows(attributes, batch.columns) for batch in read([a.name for a in attributes])]
    return np.vstack(batches) if batches else np.empty((0, 1), np.int64)


def public_moments(
    read: RawReader, target: Attribute, features: tuple[Attribute, ...], *, rows: RowMap
) -> PublicSecondMoments:
    """B^T B / n_B of rows as `rows` maps them, and the mean square of their labels; encoded as the private rows are."""
    q = _encode(read, (target, *features))
    if len(q) == 0 or not q[:, 0].any():
        raise DataError(
            "the public rows say nothing about the target", remedy="Give public rows with all the columns, varying."
        )
    x, y = rows.apply(q[:, 1:], q[:, 0])
    moments = x.T @ x / len(q)
    return PublicSecondMoments(
        rows=len(q),
        features=tuple(tuple(row) for row in moments.tolist()),
        label=float(np.mean(np.clip(y, -1, 1) ** 2)),
    )
