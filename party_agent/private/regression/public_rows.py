"""Second moments of PUBLIC rows. Nothing here may ever be given a private row: they are published as they are."""

import numpy as np

from commingle.party_agent.errors import DataError
from commingle.party_agent.private.rows import RawReader
from commingle.party_agent.private.table import encode_public
from commingle.shared.documents.regression import PublicSecondMoments
from commingle.shared.documents.schema import Attribute
from commingle.shared.dp.fixed_point import SCALE, clip_rows, squared_row_limit


def public_moments(
    read: RawReader, target: Attribute, features: tuple[Attribute, ...], *, row_norm: float | None
) -> PublicSecondMoments:
    """B^T B / n_B with a column of ones first, and the mean square of the target; both as the private rows are encoded.

    Raises:
        DataError: rows that do not fit the schema, none at all, or a target that is always at its midpoint.
    """
    q = encode_public(read, (target, *features))
    if len(q) == 0 or not q[:, 0].any():
        raise DataError(
            "the public rows say nothing about the target", remedy="Give public rows with all the columns, varying."
        )
    rows = q[:, 1:] if row_norm is None else clip_rows(q[:, 1:], squared_row_limit(row_norm))
    x = np.column_stack([np.ones(len(q)), rows / SCALE])
    moments = x.T @ x / len(q)
    return PublicSecondMoments(
        rows=len(q),
        features=tuple(tuple(row) for row in moments.tolist()),
        label=float(np.mean((q[:, 0] / SCALE) ** 2)),
    )
