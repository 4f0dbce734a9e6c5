"""Columns whose bounds a few rows set: noise is as large as the bounds, so they decide what a release is worth."""

import numpy as np

from commingle.services.simulation.dataset import StudyTable
from commingle.services.tables.reading import Table
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.encoding import as_numbers

_MOST = (1, 99)  # per cent of the rows lie between
_WIDE = 2.5  # times as far apart as the most are: of a normal column with a million rows, extremes are 2.1 times


def wide_attributes(dataset: StudyTable, table: Table) -> tuple[str, ...]:
    """Numeric attributes with bounds so far out that nearly all values lie close together; the target first."""
    wide = [a.name for a in dataset.attributes if isinstance(a, NumericAttribute) and _is_wide(a, table)]
    return tuple(sorted(wide, key=lambda name: name != dataset.target))


def _is_wide(attribute: NumericAttribute, table: Table) -> bool:
    values = as_numbers(attribute.name, table.columns[attribute.name])
    low, high = np.nanpercentile(values, _MOST)
    return bool(attribute.upper - attribute.lower > _WIDE * (high - low) > 0)
