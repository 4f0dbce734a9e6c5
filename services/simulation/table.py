"""A table in memory: one row per subject, numbers and levels by column, raw rows masked from every repr."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Levels = NDArray[np.object_]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """Columns of equal length.

    Attributes:
        subjects: (n,) distinct identifiers.
        columns: by name, (n,) each: float64 with NaN for missing, or objects that are strings, None for missing.
    """

    subjects: NDArray[np.str_]
    columns: Mapping[str, NDArray[Any]]

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.subjects)

    def rows(self, chosen: NDArray[Any]) -> Self:
        """The rows with these indices, or where this mask holds."""
        return type(self)(self.subjects[chosen], {name: values[chosen] for name, values in self.columns.items()})

    def only(self, names: Iterable[str]) -> Self:
        """These columns, in this order."""
        return type(self)(self.subjects, {name: self.columns[name] for name in names})

    def __repr__(self) -> str:
        return f"<Table of {self.n:,} rows and {len(self.columns)} columns>"


def is_numeric(values: NDArray[Any]) -> bool:
    """Whether a column holds numbers and not levels."""
    return values.dtype == np.float64


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a column has no value, (n,)."""
    return np.isnan(values) if is_numeric(values) else np.array([value is None for value in values], dtype=bool)


def as_levels(values: NDArray[Any]) -> Levels:
    """The column as levels: 1.0 becomes '1', 1.5 becomes '1.5'."""
    if not is_numeric(values):
        return values
    kinds, where = np.unique(values, return_inverse=True)  # NaNs count as one
    texts = np.array([None if np.isnan(v) else _text(float(v)) for v in kinds], dtype=object)
    return texts[where]


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
