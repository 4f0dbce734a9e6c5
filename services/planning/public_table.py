"""What is assumed where a public table is thought to be like the private one."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from commingle.services.tables import Table, conform, no_such_column
from commingle.shared.documents.row_maps import undone
from commingle.shared.documents.schema import as_registered
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.fixed_point import FRACTION_BITS, SCALE
from commingle.shared.encoding import bounded_rows, cells_for, encode_conforming
from commingle.shared.forecast.task import Assumptions, uniform_law

Array = NDArray[np.float64]


def assumed_of_table(table: Table, design: Terms, *, where: str, target: str | None = None) -> Assumptions:
    """Number and second moments of the table's rows as the parties would encode and clip them.

    Args:
        table: as read from a file.
        design: whose attributes are looked for.
        where: what an error calls the table.
        target: of the regression.

    Raises:
        TableError: it lacks an attribute, or holds what the attribute cannot.
    """
    registered = [attribute for asked in design.attributes for attribute in as_registered(asked)]
    for attribute in registered:
        if attribute.name not in table.columns:
            raise no_such_column(attribute.name, table.columns, where=where)
    held = Table(table.subjects, {a.name: conform(a, table.columns[a.name]) for a in registered})
    rows = np.hstack([encode(held, share) for share in design.parties])
    return Assumptions(target=target, second_moments=second_moments(rows, design.parties), public_rows=held.n)


def second_moments(rows: Array, shares: tuple[PartyTerms, ...]) -> Array:
    """(p, p) A^T A / n of encoded rows (n, p - 1), the intercept first.

    A column that does not vary there, such as that of a level which no row holds, varies by itself as if one row more
    had been drawn from the schema: it is rare, not impossible.
    """
    n = len(rows)
    held = np.column_stack([np.ones(n), rows])
    mean, covariance = uniform_law(shares)
    still = np.flatnonzero(np.ptp(rows, axis=0) == 0)
    moments: Array = held.T @ held / n
    means = moments[0].copy()
    means[1 + still] = (n * means[1 + still] + mean[still]) / (n + 1)
    for i in still:
        square = (n * moments[1 + i, 1 + i] + covariance[i, i] + mean[i] ** 2) / (n + 1)
        moments[1 + i] = moments[:, 1 + i] = means[1 + i] * means
        moments[1 + i, 1 + i] = square
    return moments


def encode(table: Table, share: PartyTerms) -> Array:
    """(n, d) rows of one party as they are forecast: what is missing lies at the midpoint.

    That is as its agent mixes them, but that maps which follow from sums are not applied (`assumed_maps`).
    """
    encoded = np.hstack(
        [encode_conforming(a, *cells_for(a, table.columns), gaps=True).columns for a in share.attributes]
    )
    whitening = None if share.whitening is None else share.whitening.integer_map()
    cut = replace(share, row_norm=share.clipped_at, first_stage_share=None)
    published = np.divide(bounded_rows(cut, whitening)(encoded), SCALE)
    if whitening is not None:
        return published
    undo, shift = undone(cut, None, FRACTION_BITS)
    return np.asarray(published @ undo.T + shift)
