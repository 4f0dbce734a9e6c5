"""Second moments of a public table that is thought to be like the private one."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from commingle.services.simulation.attributes import conform
from commingle.services.simulation.evaluate import design as original_columns
from commingle.services.simulation.reading import no_such_column, read_table
from commingle.services.simulation.table import Table
from commingle.shared.documents.schema import encoded_columns
from commingle.shared.planning.design import PartyDesign, ReleaseDesign

Array = NDArray[np.float64]


def second_moments(path: Path, design: ReleaseDesign) -> Array:
    """(p, p) A^T A / n of the table's rows as the parties would encode and clip them, the intercept first.

    Raises:
        TableError: it cannot be read, lacks an attribute, or holds what the attribute cannot.
    """
    table = read_table(path, subject_id=None).table
    for attribute in design.attributes:
        if attribute.name not in table.columns:
            raise no_such_column(attribute.name, table.columns, where=str(path))
    held = Table(table.subjects, {a.name: conform(a, table.columns[a.name]) for a in design.attributes})
    rows = np.column_stack([np.ones(held.n), *(encode(held, share) for share in design.shares)])
    moments: Array = rows.T @ rows / held.n
    return moments


def encode(table: Table, share: PartyDesign) -> Array:
    """(n, d) encoded rows of one party, whitened and clipped as it asks; what is missing lies at the midpoint."""
    columns = encoded_columns(share.attributes)
    offset, scale = np.array([c.offset for c in columns]), np.array([c.scale for c in columns])
    rows: Array = (original_columns(table, share.attributes) - offset) / scale
    if share.whitening is not None:
        rows = (rows - np.array(share.whitening.centre)) @ np.array(share.whitening.matrix).T
    if share.row_norm is not None:
        norm = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows * np.minimum(1, share.row_norm / np.maximum(norm, np.finfo(float).tiny))
    return rows
