"""Raw rows in memory. Importable only inside this package (import contract); their repr shows sizes only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Cells: TypeAlias = "pa.Array[Any]"
"""One column of some rows, of whatever type the source has."""


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Some rows as the source holds them, one array per column asked for."""

    columns: dict[str, Cells] = field(repr=False)
    size: int


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Some rows, encoded.

    Attributes:
        subjects: canonical subject ids of the m rows.
        attributes: per attribute its integer columns (m x width), fixed point.
    """

    subjects: list[bytes] = field(repr=False)
    attributes: dict[str, NDArray[np.int64]] = field(repr=False)


RawReader = Callable[[Sequence[str]], Iterator[RawBatch]]
"""Reads the named columns, a batch at a time, always in the same order of rows."""
