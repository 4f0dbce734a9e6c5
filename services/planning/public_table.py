"""Second moments of a public table that is thought to be like the private one."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from commingle.services.tables.reading import Table, no_such_column, read_table
from commingle.services.tables.schema import conform
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import bounded_rows, encode_conforming
from commingle.shared.planning.design import PartyDesign, ReleaseDesign

Array = NDArray[np.float64]


def second_moments(path: Path, design: ReleaseDesign) -> Array:
    """(p, p) A^T A / n of the table's rows as the parties would encode and clip them, the intercept first.

    Raises:
        TableError: it cannot be read, lacks an attribute, or holds what the attribute cannot.
    """
    table = read_table(path).table
    for attribute in design.attributes:
        if attribute.name not in table.columns:
            raise no_such_column(attribute.name, table.columns, where=str(path))
    held = Table(table.subjects, {a.name: conform(a, table.columns[a.name]) for a in design.attributes})
    rows = np.column_stack([np.ones(held.n), *(encode(held, share) for share in design.shares)])
    moments: Array = rows.T @ rows / held.n
    return moments


def encode(table: Table, share: PartyDesign) -> Array:
    """(n, d) rows of one party as its agent would mix them; what is missing lies at the midpoint."""
    encoded = [encode_conforming(a, table.columns[a.name], gaps=True).columns for a in share.attributes]
    rows: Array = bounded_rows(share)(np.hstack(encoded)) / SCALE
    return rows
